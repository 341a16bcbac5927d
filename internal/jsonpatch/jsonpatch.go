// Package jsonpatch is what JSON patches are made of: operations (RFC 6902) and
// the pointers that say where (RFC 6901).
package jsonpatch

import "strings"

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
