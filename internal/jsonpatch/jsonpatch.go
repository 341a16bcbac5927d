// Package jsonpatch builds JSON patches of pods and SidecarSets: operations (RFC 6902) and pointers (RFC
// 6901).
package jsonpatch

import (
	"maps"
	"slices"
	"strings"
)

// Operation is an operation of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Pointer returns the JSON pointer for a path of names and indexes. Pointer escapes the tokens.
func Pointer(tokens ...string) string {
	var pointer strings.Builder
	for _, token := range tokens {
		pointer.WriteByte('/')
		pointer.WriteString(strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1"))
	}
	return pointer.String()
}

// Add returns the operation that adds or replaces the value at a pointer.
func Add(pointer string, value any) Operation {
	return Operation{Op: "add", Path: pointer, Value: value}
}

// SetKeys returns the operations that set the keys of changed in an object whose values are strings, such as
// annotations. If the object is empty, the operation sets the whole object, because the object may be missing.
func SetKeys(pointer string, existing, changed map[string]string) []Operation {
	switch {
	case len(changed) == 0:
		return nil
	case len(existing) == 0:
		return []Operation{Add(pointer, changed)}
	}
	operations := make([]Operation, 0, len(changed))
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		operations = append(operations, Add(pointer+Pointer(key), changed[key]))
	}
	return operations
}

// Append returns the operations that append items to a list. existing is the number of elements of the list. If
// the list is empty, the operation sets the whole list, because the list may be missing.
func Append[T any](pointer string, existing int, items []T) []Operation {
	switch {
	case len(items) == 0:
		return nil
	case existing == 0:
		return []Operation{Add(pointer, items)}
	}
	operations := make([]Operation, len(items))
	for i := range items {
		operations[i] = Add(pointer+"/-", items[i])
	}
	return operations
}
