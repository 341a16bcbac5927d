package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	applied = "../../config/crd/bases/apps.kruise.io_sidecarsets.yaml"
	// The annotations of an object may contain at most 256 KiB. kubectl apply stores the whole manifest in an
	// annotation.
	annotationsLimit = 256 << 10
	spare            = 4 << 10
)

func TestTheDefinitionFitsIntoTheAnnotationOfKubectlApply(t *testing.T) {
	definition, err := read(applied)
	require.NoError(t, err)
	text, err := json.Marshal(definition)
	require.NoError(t, err)
	assert.Less(t, len(text), annotationsLimit-spare)
}

func TestEveryFieldIsDescribedAndKubernetesFieldsHaveNoDefaultsOrRules(t *testing.T) {
	definition, err := read(applied)
	require.NoError(t, err)
	for _, version := range definition.Spec.Versions {
		root := *version.Schema.OpenAPIV3Schema
		delete(root.Properties, "metadata")
		assertDescribed(t, version.Name, root)
		for list := range core() {
			assertRelaxed(t, version.Name+" "+list, root.Properties["spec"].Properties[list])
		}
	}
}

// The webhook stores service: null in a gRPC probe, like OpenKruise.
func TestFieldsThatGoEncodesAsNullAreNullable(t *testing.T) {
	definition, err := read(applied)
	require.NoError(t, err)
	for _, version := range definition.Spec.Versions {
		spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
		for _, list := range []string{"containers", "initContainers"} {
			for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
				grpc := spec.Properties[list].Items.Schema.Properties[probe].Properties["grpc"]
				assert.True(t, grpc.Properties["service"].Nullable, "%s %s %s", version.Name, list, probe)
				assert.False(t, grpc.Properties["port"].Nullable)
			}
		}
		projected := spec.Properties["volumes"].Items.Schema.Properties["projected"]
		assert.True(t, projected.Properties["sources"].Nullable, version.Name)
	}
}

func TestTheSchemaAcceptsTheQuantitiesThatAClientDecodes(t *testing.T) {
	accepts := regexp.MustCompile(quantity).MatchString
	parts := [][]string{{"", "+", "-", " "}, {"", "0", "1", "12", "1.", ".5", "1.5", ".", "1..5", "x"},
		{"", "n", "u", "m", "k", "K", "Ki", "M", "Mi", "G", "Gi", "T", "Ti", "P", "Pi", "E", "Ei", "e", "e3", "E3", "e+3", "e-3", "e1.5", "mi", "i", " ", "\t\n", "e9999999999"}}
	for _, sign := range parts[0] {
		for _, number := range parts[1] {
			for _, suffix := range parts[2] {
				text := sign + number + suffix
				var decoded resource.Quantity
				err := json.Unmarshal([]byte(strconv.Quote(text)), &decoded)
				// A client decodes a suffix without a number as 0, but the schema rejects this text.
				decodes := err == nil && strings.ContainsAny(number, "01235")
				assert.Equal(t, decodes, accepts(text), "%q: %v", text, err)
			}
		}
	}
}

func TestEveryIntegerOf32BitsIsBounded(t *testing.T) {
	paths, err := filepath.Glob("../../config/crd/bases/*.yaml")
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		values := strings.Count(string(text), "x-kubernetes-int-or-string: true") - strings.Count(string(text), "KMGTPE")
		assert.GreaterOrEqual(t, strings.Count(string(text), "maximum: 2147483647"), values, path)
		if strings.HasSuffix(path, "sidecarsets.yaml") {
			continue
		}
		integers := strings.Count(string(text), "format: int32\n")
		assert.Len(t, regexp.MustCompile(`format: int32\n +maximum: `).FindAllString(string(text), -1), integers, path)
	}
}

func assertDescribed(t *testing.T, path string, value apiextensionsv1.JSONSchemaProps) {
	for name, field := range value.Properties {
		assert.NotEmpty(t, field.Description, "%s.%s", path, name)
		assertDescribed(t, path+"."+name, inner(field))
	}
}

func assertRelaxed(t *testing.T, path string, value apiextensionsv1.JSONSchemaProps) {
	assert.Nil(t, value.Default, path)
	assert.Contains(t, []string{"", quantity}, value.Pattern, path)
	assert.Contains(t, []string{"", "int32"}, value.Format, path)
	if value.Items != nil {
		assert.Equal(t, value.XListMapKeys, value.Items.Schema.Required, path)
	}
	if value.Type == "object" && value.AdditionalProperties == nil && !strings.HasSuffix(path, ".metadata") {
		assert.True(t, *value.XPreserveUnknownFields, path)
	}
	for name, field := range value.Properties {
		assertRelaxed(t, path+"."+name, field)
		if field.Items != nil {
			assertRelaxed(t, path+"."+name+"[]", *field.Items.Schema)
		}
	}
}
