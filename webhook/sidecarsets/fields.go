package sidecarsets

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/conversion"
	"github.com/outrigger/outrigger/internal/jsonpatch"
)

// difference returns what turns a raw SidecarSet into its completed form.
// Fields that the types of this program know are taken from the completed form,
// all others stay as they were written (SPEC §1).
func difference(raw []byte, completed *v1alpha1.SidecarSet) ([]jsonpatch.Operation, error) {
	var written struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
			Labels      map[string]string `json:"labels"`
		} `json:"metadata"`
		Spec any `json:"spec"`
	}
	if err := utiljson.Unmarshal(raw, &written); err != nil {
		return nil, fmt.Errorf("read the raw object: %w", err)
	}
	spec, err := completedSpec(written.Spec, completed)
	if err != nil {
		return nil, err
	}
	operations := annotationDifference(written.Metadata.Annotations, completed.Annotations)
	operations = append(operations, customVersionDifference(written.Metadata.Labels, completed.Labels)...)
	if !reflect.DeepEqual(spec, written.Spec) {
		operations = append(operations, jsonpatch.Operation{Op: "add", Path: "/spec", Value: spec})
	}
	owners, err := conversion.StoredOwnership(completed)
	if err != nil {
		return nil, err
	}
	if owners != nil {
		operations = append(operations, jsonpatch.Operation{Op: "add", Path: "/metadata/managedFields", Value: owners})
	}
	return operations, nil
}

// completedSpec is the spec of a completed set with what is unknown of the
// written one.
func completedSpec(written any, completed *v1alpha1.SidecarSet) (any, error) {
	spec, err := untyped(completed.Spec)
	if err != nil {
		return nil, err
	}
	spec = withUnknown(spec, written, reflect.TypeFor[v1alpha1.SidecarSetSpec]())
	dropGuessedSources(spec, written)
	return spec, nil
}

func annotationDifference(written, completed map[string]string) []jsonpatch.Operation {
	if len(written) == 0 {
		return []jsonpatch.Operation{{Op: "add", Path: jsonpatch.Pointer("metadata", "annotations"), Value: completed}}
	}
	var operations []jsonpatch.Operation
	for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation} {
		if written[key] != completed[key] {
			operations = append(operations, jsonpatch.Operation{Op: "add", Path: jsonpatch.Pointer("metadata", "annotations", key), Value: completed[key]})
		}
	}
	return operations
}

func untyped(value any) (any, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode the completed spec: %w", err)
	}
	var decoded any
	if err := utiljson.Unmarshal(encoded, &decoded); err != nil {
		return nil, fmt.Errorf("decode the completed spec: %w", err)
	}
	return decoded, nil
}

// withUnknown adds to a value of type t, in its untyped form, what was written
// under names that the type does not have.
func withUnknown(value, written any, t reflect.Type) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return value
	}
	switch t.Kind() {
	case reflect.Struct:
		return objectWithUnknown(value, written, fieldTypes(t))
	case reflect.Slice:
		items, ok := value.([]any)
		writtenItems, wasList := written.([]any)
		if !ok || !wasList || len(items) != len(writtenItems) {
			return value
		}
		for i := range items {
			items[i] = withUnknown(items[i], writtenItems[i], t.Elem())
		}
	}
	return value
}

func objectWithUnknown(value, written any, known map[string]reflect.Type) any {
	object, ok := value.(map[string]any)
	writtenObject, wasObject := written.(map[string]any)
	if !ok || !wasObject {
		return value
	}
	for name, writtenValue := range writtenObject {
		t, isKnown := known[name]
		_, present := object[name]
		switch {
		case !isKnown:
			object[name] = writtenValue
		case present:
			object[name] = withUnknown(object[name], writtenValue, t)
		}
	}
	return object
}

// fieldTypes maps JSON names to types, inline structs included.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			types[name] = f.Type
		}
	}
	return types
}

// dropGuessedSources removes the emptyDir that defaulting gave to volumes whose
// source is of a kind that this program does not know.
func dropGuessedSources(spec, written any) {
	known := fieldTypes(reflect.TypeFor[corev1.Volume]())
	volumes, writtenVolumes := volumesOf(spec), volumesOf(written)
	for i := range min(len(volumes), len(writtenVolumes)) {
		volume, ok := volumes[i].(map[string]any)
		writtenVolume, wasObject := writtenVolumes[i].(map[string]any)
		if !ok || !wasObject || writtenVolume["emptyDir"] != nil {
			continue
		}
		for name := range writtenVolume {
			if known[name] == nil {
				delete(volume, "emptyDir")
			}
		}
	}
}

func volumesOf(spec any) []any {
	object, _ := spec.(map[string]any)
	volumes, _ := object["volumes"].([]any)
	return volumes
}
