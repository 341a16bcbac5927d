package jsonpatch

import (
	"maps"
	"slices"
	"strings"
)

// Operation is a step of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Pointer leads through objects and lists by these names and indexes, whatever
// characters they hold.
func Pointer(tokens ...string) string {
	var pointer strings.Builder
	for _, token := range tokens {
		pointer.WriteByte('/')
		pointer.WriteString(strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1"))
	}
	return pointer.String()
}

// Add writes a value at a pointer.
func Add(pointer string, value any) Operation {
	return Operation{Op: "add", Path: pointer, Value: value}
}

// SetKeys writes keys into an object of strings, such as annotations. One that holds
// nothing so far may be missing, and is written as a whole.
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

// Append adds items to a list of so many. An empty one may be missing, and is written
// as a whole.
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
