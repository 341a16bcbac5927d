package main

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// core returns the type of the items of each list whose items have a Kubernetes type.
func core() map[string]reflect.Type {
	return map[string]reflect.Type{
		"containers": reflect.TypeFor[corev1.Container](), "initContainers": reflect.TypeFor[corev1.Container](),
		"volumes": reflect.TypeFor[corev1.Volume](),
	}
}

// keyOf returns the key with which server-side apply merges a list. Ports have no key, because the protocol
// of a port may be omitted.
func keyOf(list string) string {
	return map[string]string{"env": "name", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}[list]
}

// relax removes validation from the schema of a spec, because the webhook validates SidecarSets
// (SPEC §5).
func relax(spec apiextensionsv1.JSONSchemaProps) {
	for name, kubernetes := range core() {
		list := spec.Properties[name]
		item := list.Items.Schema
		for field, value := range item.Properties {
			own := !hasField(kubernetes, field)
			walk(field, &value, func(name string, inner *apiextensionsv1.JSONSchemaProps) { relaxValue(inner, name, own) })
			item.Properties[field] = value
		}
		relaxValue(item, "", false)
		relaxList(&list, "name")
		admitNulls(item, kubernetes)
		spec.Properties[name] = list
	}
}

func relaxList(list *apiextensionsv1.JSONSchemaProps, key string) {
	item := list.Items.Schema
	item.Description = ""
	list.XListType, list.XListMapKeys = nil, nil
	if key != "" {
		list.XListType, list.XListMapKeys = new("map"), []string{key}
		item.Required = []string{key}
	}
}

// relaxValue removes defaults, pruning and validation from the schema of a value, because stored SidecarSets
// may have fields that the schema does not describe. If own is true, Outrigger defines the value, and the
// schema keeps the full description. The nested values are already relaxed.
func relaxValue(value *apiextensionsv1.JSONSchemaProps, name string, own bool) {
	if !own {
		value.Description = brief(value.Description)
	}
	value.Default, value.Required, value.AnyOf, value.Pattern = nil, nil, nil, decodable(value)
	if value.Format != "int32" {
		value.Format = ""
	}
	switch {
	case value.Items != nil:
		relaxList(value, keyOf(name))
	case value.AdditionalProperties != nil:
		value.AdditionalProperties.Schema.Description = ""
	case value.Type == "object" && name == "metadata":
		describeMetadata(value)
	case value.Type == "object":
		value.XPreserveUnknownFields = new(true)
	}
}

// admitNulls makes fields nullable that Go encodes as null if the fields are not set, such as the service of
// a gRPC probe. The webhook stores these nulls, and hashes depend on these nulls.
func admitNulls(value *apiextensionsv1.JSONSchemaProps, t reflect.Type) {
	switch {
	case t.Kind() == reflect.Pointer:
		admitNulls(value, t.Elem())
	case t.Kind() == reflect.Slice && value.Items != nil:
		admitNulls(value.Items.Schema, t.Elem())
	case t.Kind() == reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			property, described := value.Properties[name]
			if !described {
				continue
			}
			property.Nullable = (f.Type.Kind() == reflect.Pointer || f.Type.Kind() == reflect.Slice) && !strings.Contains(options, "omitempty")
			admitNulls(&property, f.Type)
			value.Properties[name] = property
		}
	}
}

func hasField(t reflect.Type, jsonName string) bool {
	return slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name == jsonName
	})
}

// asides matches the parts that brief omits from a description of Kubernetes: the statement that a field is
// optional or required, references, and parentheses.
var asides = regexp.MustCompile(`(?i)^(\w+ )?(is )?(optional|required): |\s+More\s+info:\s+\S+| \([^)]*\)`)

// brief returns the first sentence of a description without asides, or the first clause of a long sentence.
// With full descriptions, the definition exceeds 256 KiB, the limit for the annotation in which kubectl apply
// stores the definition.
func brief(description string) string {
	var kept []string
	for _, word := range strings.Fields(asides.ReplaceAllString(description, "")) {
		kept = append(kept, word)
		if ends(word, len(kept)) {
			break
		}
	}
	if len(kept) == 0 {
		return ""
	}
	return strings.TrimRight(strings.Join(kept, " "), ".,:;") + "."
}

// ends reports whether a description may end with word, which is the nth word of the description.
func ends(word string, nth int) bool {
	switch word[len(word)-1] {
	case '.':
		return !slices.Contains([]string{"e.g.", "i.e.", "etc."}, word)
	case ':', ';':
		return nth > 4
	case ',':
		return nth > 7
	}
	return false
}
