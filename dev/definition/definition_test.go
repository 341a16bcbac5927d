package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	applied = "../../config/crd/bases/apps.kruise.io_sidecarsets.yaml"
	// annotations of an object may have 256 KiB, of which kubectl apply needs one for
	// the whole manifest.
	annotationsLimit = 256 << 10
	spare            = 12 << 10
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

// The webhook stores service: null in a gRPC probe, as OpenKruise does.
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

func assertDescribed(t *testing.T, path string, value apiextensionsv1.JSONSchemaProps) {
	for name, field := range value.Properties {
		assert.NotEmpty(t, field.Description, "%s.%s", path, name)
		assertDescribed(t, path+"."+name, inner(field))
	}
}

func assertRelaxed(t *testing.T, path string, value apiextensionsv1.JSONSchemaProps) {
	assert.Nil(t, value.Default, path)
	assert.Empty(t, value.Pattern+value.Format, path)
	if value.Items != nil {
		assert.Equal(t, value.XListMapKeys, value.Items.Schema.Required, path)
	}
	if value.Type == "object" && value.AdditionalProperties == nil {
		assert.True(t, *value.XPreserveUnknownFields, path)
	}
	for name, field := range value.Properties {
		assertRelaxed(t, path+"."+name, field)
		if field.Items != nil {
			assertRelaxed(t, path+"."+name+"[]", *field.Items.Schema)
		}
	}
}
