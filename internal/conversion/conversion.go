// Package conversion converts SidecarSets between the versions of their API. The package works on decoded JSON,
// so that unknown fields are preserved. The versions differ in two fields:
//
//	v1alpha1                                                    v1beta1
//	spec.namespace                                              spec.namespaceSelector
//	label apps.kruise.io/sidecarset-custom-version              spec.customVersion
package conversion

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/api/v1beta1"
)

// Convert converts a SidecarSet, as decoded JSON, to the version toAPIVersion in place. Convert does not
// change an invalid value, such as a namespace that is a number, because validation rejects the value.
// Convert returns an error only for an unknown version.
func Convert(object map[string]any, toAPIVersion string) error {
	alpha, beta := v1alpha1.GroupVersion.String(), v1beta1.GroupVersion.String()
	from, _ := object["apiVersion"].(string)
	switch {
	case from == toAPIVersion && (from == alpha || from == beta):
		return nil
	case from == alpha && toAPIVersion == beta:
		labelToCustomVersion(object)
		namespaceToSelector(object)
	case from == beta && toAPIVersion == alpha:
		customVersionToLabel(object)
		selectorToNamespace(object)
	default:
		return fmt.Errorf("SidecarSets have no conversion from %q to %q: use %s or %s", from, toAPIVersion, alpha, beta)
	}
	object["apiVersion"] = toAPIVersion
	if object["metadata"] == nil {
		// The API server also converts objects without metadata, but requires metadata in the response.
		object["metadata"] = map[string]any{}
	}
	return nil
}

func labelToCustomVersion(object map[string]any) {
	version, isString := child(object, "metadata", "labels")[v1alpha1.CustomVersionLabel].(string)
	if !isString {
		return
	}
	remove(object, "metadata", "labels", v1alpha1.CustomVersionLabel)
	set(object, version, "spec", "customVersion")
}

// customVersionToLabel moves spec.customVersion to the label of v1alpha1. A custom version that is not a valid
// label value is not moved. The conversion to v1beta1 removes the label, so an existing label is newer than
// spec.customVersion, and takes precedence. For example, kubectl label adds the label to an object of v1beta1.
func customVersionToLabel(object map[string]any) {
	version, isString := child(object, "spec")["customVersion"].(string)
	if !isString || len(validation.IsValidLabelValue(version)) > 0 {
		return
	}
	remove(object, "spec", "customVersion")
	if _, labelled := child(object, "metadata", "labels")[v1alpha1.CustomVersionLabel]; !labelled {
		set(object, version, "metadata", "labels", v1alpha1.CustomVersionLabel)
	}
}

// child returns the object at a path, or nil.
func child(object map[string]any, path ...string) map[string]any {
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}

// set writes a value at a path, and creates missing objects.
func set(object map[string]any, value any, path ...string) {
	last := len(path) - 1
	for _, name := range path[:last] {
		next, exists := object[name].(map[string]any)
		if !exists {
			next = map[string]any{}
			object[name] = next
		}
		object = next
	}
	object[path[last]] = value
}

// remove deletes the value at a path, and the objects on the path that become empty. remove reports whether
// the path had a value.
func remove(object map[string]any, path ...string) bool {
	name := path[0]
	if len(path) == 1 {
		_, present := object[name]
		delete(object, name)
		return present
	}
	below, _ := object[name].(map[string]any)
	if !remove(below, path[1:]...) {
		return false
	}
	if len(below) == 0 {
		delete(object, name)
	}
	return true
}
