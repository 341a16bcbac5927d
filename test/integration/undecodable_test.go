package integration

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/api/v1beta1"
)

// specValue is a spec in which the field path has a certain value.
type specValue struct {
	path string
	spec any
}

// If a client cannot decode one SidecarSet of a list, the whole list fails, and the webhook cannot admit
// pods. While no webhook is installed, only the API server validates SidecarSets.
func TestSpec5_31_TheAPIServerAcceptsNothingThatNoClientDecodes(t *testing.T) {
	_, direct := startControlPlane(t)
	text, err := os.ReadFile("../../config/crd/bases/apps.kruise.io_sidecarsets.yaml")
	require.NoError(t, err)
	var definition apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(text, &definition))
	for _, version := range definition.Spec.Versions {
		spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
		good, bad := valuesOf("spec", &spec)
		require.Greater(t, len(bad), 200)
		for _, value := range good {
			assert.Empty(t, create(t, direct, version.Name, value), "%s %s", version.Name, value.path)
		}
		accepted := 0
		for _, value := range bad {
			if rejection := create(t, direct, version.Name, value); rejection == "" {
				accepted++
			}
		}
		t.Logf("%s: %d of %d values that look wrong are accepted and decoded", version.Name, accepted, len(bad))
	}
}

// create creates a SidecarSet in a dry run, and returns the error of the API server. If the API server
// accepts the SidecarSet, create asserts that a client can decode the SidecarSet.
func create(t *testing.T, direct client.Client, version string, value specValue) (rejection string) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": value.spec}}
	object.SetAPIVersion("apps.kruise.io/" + version)
	object.SetKind("SidecarSet")
	object.SetName("decoded")
	if err := direct.Create(t.Context(), object, client.DryRunAll); err != nil {
		return err.Error()
	}
	typed := map[string]any{"v1alpha1": &v1alpha1.SidecarSet{}, "v1beta1": &v1beta1.SidecarSet{}}[version]
	stored, err := json.Marshal(object)
	require.NoError(t, err)
	assert.NoError(t, json.Unmarshal(stored, typed), "%s %s is accepted, and no client decodes %s", version, value.path, stored)
	return ""
}

// valuesOf returns specs with valid values of a field, and specs with values that no client can decode.
func valuesOf(path string, schema *apiextensionsv1.JSONSchemaProps) (good, bad []specValue) {
	leaf := func(values ...any) (all []specValue) {
		for _, value := range values {
			all = append(all, specValue{path, value})
		}
		return all
	}
	const large = int64(3_000_000_000)
	wrong := []any{large, -large, 1e30, "x", "1e1.5", "1e9999999999", " 1", 1.5, true}
	switch {
	case schema.XIntOrString:
		return leaf(int64(1), "100"), leaf(wrong...)
	case schema.Type == "integer":
		return leaf(int64(1)), leaf(wrong...)
	case schema.Type == "boolean":
		return leaf(true), leaf("true", int64(1))
	case schema.Type == "string":
		return nil, leaf(int64(1), true)
	case schema.Items != nil:
		good, bad = valuesOf(path+"[]", schema.Items.Schema)
		return inList(good), inList(bad)
	case schema.AdditionalProperties != nil:
		good, bad = valuesOf(path+".key", schema.AdditionalProperties.Schema)
		return inMap(good, "key"), inMap(bad, "key")
	}
	if len(schema.Properties) == 0 {
		bad = leaf(map[string]any{"labels": map[string]any{"a": int64(1)}}, map[string]any{"creationTimestamp": "yesterday"})
	}
	for name, property := range schema.Properties {
		goodIn, badIn := valuesOf(path+"."+name, &property)
		good, bad = append(good, inObject(goodIn, name, schema)...), append(bad, inObject(badIn, name, schema)...)
	}
	return good, bad
}

func inMap(values []specValue, key string) []specValue {
	for i := range values {
		values[i].spec = map[string]any{key: values[i].spec}
	}
	return values
}

// inObject sets the field name to each value, and sets the other required fields of the object.
func inObject(values []specValue, name string, schema *apiextensionsv1.JSONSchemaProps) []specValue {
	for i := range values {
		fields := map[string]any{}
		for _, required := range schema.Required {
			fields[required] = "key"
			if schema.Properties[required].Type == "object" {
				fields[required] = map[string]any{}
			}
		}
		fields[name] = values[i].spec
		values[i].spec = fields
	}
	return values
}

func inList(values []specValue) []specValue {
	for i := range values {
		values[i].spec = []any{values[i].spec}
	}
	return values
}
