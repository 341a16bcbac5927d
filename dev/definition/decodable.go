package main

import (
	"cmp"
	"math"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// If a client cannot decode one object of a list, the whole list fails. The schemas therefore reject values
// that no client can decode, even if no webhook is installed.

// quantity is the pattern of the strings that contain a digit and that a client decodes as a quantity. The
// pattern of Kubernetes is longer and also admits fractions in exponents, which no client decodes.
const quantity = `^ *[+-]?(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,18})? *$`

// decodable returns the pattern of value if value is a quantity, and otherwise an empty string.
func decodable(value *apiextensionsv1.JSONSchemaProps) string {
	if value.XIntOrString && value.Pattern != "" {
		return quantity
	}
	return ""
}

// describeMetadata describes the metadata of a template of PersistentVolumeClaims, for which controller-gen
// writes no fields. Kubernetes accepts only labels and annotations, so the API server prunes other fields.
func describeMetadata(value *apiextensionsv1.JSONSchemaProps) {
	texts := &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}
	value.Properties = map[string]apiextensionsv1.JSONSchemaProps{
		"labels":      {Type: "object", Description: "Labels of the PVC.", AdditionalProperties: texts},
		"annotations": {Type: "object", Description: "Annotations of the PVC.", AdditionalProperties: texts},
	}
}

// bound limits every int-or-string in a schema to 32 bits. If integers is true, bound also limits every int32.
// controller-gen writes only the format of an int32, which API servers before Kubernetes 1.36 do not check.
func bound(schema *apiextensionsv1.JSONSchemaProps, integers bool) {
	walk("", schema, func(_ string, value *apiextensionsv1.JSONSchemaProps) {
		if value.XIntOrString && value.Pattern == "" || integers && value.Type == "integer" && value.Format == "int32" {
			value.Minimum, value.Maximum = cmp.Or(value.Minimum, new(float64(math.MinInt32))), cmp.Or(value.Maximum, new(float64(math.MaxInt32)))
		}
	})
}

// walk calls visit for each value in a schema, the outer values last. The name is the name of the field, and is
// empty for the items of a list and the values of a map.
func walk(name string, value *apiextensionsv1.JSONSchemaProps, visit func(string, *apiextensionsv1.JSONSchemaProps)) {
	for field, property := range value.Properties {
		walk(field, &property, visit)
		value.Properties[field] = property
	}
	if value.Items != nil {
		walk("", value.Items.Schema, visit)
	}
	if value.AdditionalProperties != nil {
		walk("", value.AdditionalProperties.Schema, visit)
	}
	visit(name, value)
}
