package sidecarsets

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// unknownFields warns of what a SidecarSet keeps (SPEC §1) but pods do not get:
// fields of a newer Kubernetes, and misspelt ones.
func unknownFields(raw []byte) []string {
	var warnings []string
	for _, path := range unknown(raw, reflect.TypeFor[v1alpha1.SidecarSet](), nil) {
		warnings = append(warnings, fmt.Sprintf("unknown field %q: it is kept, but not injected", path))
	}
	return warnings
}

// unknown returns the paths of the fields that a type does not have.
func unknown(raw []byte, t reflect.Type, at *field.Path) []*field.Path {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var found []*field.Path
	switch {
	case decodesItself(t):
	case t.Kind() == reflect.Struct:
		types := fieldTypes(t)
		values := decoded[map[string]json.RawMessage](raw)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if known := types[name]; known != nil {
				found = append(found, unknown(values[name], known, at.Child(name))...)
			} else {
				found = append(found, at.Child(name))
			}
		}
	case t.Kind() == reflect.Slice:
		for i, item := range decoded[[]json.RawMessage](raw) {
			found = append(found, unknown(item, t.Elem(), at.Index(i))...)
		}
	}
	return found
}
