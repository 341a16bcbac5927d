package conversion

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger/outrigger/api/v1beta1"
)

// These are the names of the fields that define a scope.
const (
	namespaceField   = "namespace"
	selectorField    = "namespaceSelector"
	expressionsField = "matchExpressions"
)

// scope contains the fields of v1alpha1 that select namespaces.
type scope map[string]any

func scopeIn(spec map[string]any) scope {
	found := scope{}
	for _, name := range []string{namespaceField, selectorField} {
		if value, present := spec[name]; present {
			found[name] = value
		}
	}
	return found
}

// selector returns the scope as one namespaceSelector, or nil for a scope of all namespaces. valid is false if
// a field of the scope has a wrong type.
func (s scope) selector() (selector any, valid bool) {
	written, present := s[selectorField]
	object, isObject := written.(map[string]any)
	if present && !isObject {
		return nil, false
	}
	namespace, isString := s[namespaceField].(string)
	if _, named := s[namespaceField]; named && !isString {
		return nil, false
	}
	switch {
	case namespace == "":
		return written, true
	case !present:
		return map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: namespace}}, true
	}
	return narrowed(object, namespace)
}

// narrowed returns a copy of selector that also requires the given namespace. valid is false if
// matchExpressions is not a list.
func narrowed(selector map[string]any, namespace string) (narrow any, valid bool) {
	written, present := selector[expressionsField]
	expressions, isList := written.([]any)
	if present && !isList {
		return nil, false
	}
	narrower := maps.Clone(selector)
	narrower[expressionsField] = append(slices.Clone(expressions), map[string]any{
		"key": corev1.LabelMetadataName, "operator": string(metav1.LabelSelectorOpIn), "values": []any{namespace},
	})
	return narrower, true
}

// scopeOf converts a namespaceSelector of v1beta1 to a scope of v1alpha1. A selector that only requires the
// name of one namespace becomes spec.namespace.
func scopeOf(selector any) scope {
	if selector == nil {
		return scope{}
	}
	object, _ := selector.(map[string]any)
	matched, _ := object["matchLabels"].(map[string]any)
	name, isString := matched[corev1.LabelMetadataName].(string)
	if len(object) == 1 && len(matched) == 1 && isString && len(validation.IsDNS1123Label(name)) == 0 {
		return scope{namespaceField: name}
	}
	return scope{selectorField: selector}
}

func (s scope) replaceIn(spec map[string]any) {
	delete(spec, namespaceField)
	delete(spec, selectorField)
	maps.Copy(spec, s)
}

// namespaceToSelector replaces the scope of v1alpha1 with one namespaceSelector. If scopeOf does not convert
// the selector back to the same scope, an annotation records the scope.
func namespaceToSelector(object map[string]any) {
	remove(object, "metadata", "annotations", v1beta1.V1alpha1ScopeAnnotation)
	spec := child(object, "spec")
	written := scopeIn(spec)
	selector, valid := written.selector()
	if !valid {
		return
	}
	single := scope{}
	if selector != nil {
		single[selectorField] = selector
	}
	single.replaceIn(spec)
	if reflect.DeepEqual(scopeOf(selector), written) {
		return
	}
	if encoded, err := json.Marshal(written); err == nil {
		set(object, string(encoded), "metadata", "annotations", v1beta1.V1alpha1ScopeAnnotation)
	}
}

// selectorToNamespace replaces the namespaceSelector of v1beta1 with a scope of v1alpha1. If the recorded scope
// does not convert to the selector, a client has changed the selector after the conversion, and the annotation
// is ignored. If a client writes spec.namespace in v1beta1, the value replaces the namespace of the scope.
func selectorToNamespace(object map[string]any) {
	annotation, _ := child(object, "metadata", "annotations")[v1beta1.V1alpha1ScopeAnnotation].(string)
	remove(object, "metadata", "annotations", v1beta1.V1alpha1ScopeAnnotation)
	spec := child(object, "spec")
	if spec == nil {
		return
	}
	written := scopeOf(spec[selectorField])
	if recorded, valid := decodeScope(annotation); valid {
		if selector, valid := recorded.selector(); valid && reflect.DeepEqual(selector, spec[selectorField]) {
			written = recorded
		}
	}
	if value, named := spec[namespaceField]; named {
		namespace, isString := value.(string)
		if _, limited := written[namespaceField]; !limited || !isString || namespace == "" {
			return
		}
		written = maps.Clone(written)
		written[namespaceField] = namespace
	}
	written.replaceIn(spec)
}

func decodeScope(annotation string) (recorded scope, valid bool) {
	var fields map[string]any
	if err := json.Unmarshal([]byte(annotation), &fields); err != nil {
		return nil, false
	}
	recorded = scopeIn(fields)
	return recorded, len(recorded) == len(fields)
}
