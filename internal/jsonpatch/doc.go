// Package jsonpatch is what the patches of pods and SidecarSets are made of:
// operations (RFC 6902) and the pointers that say where (RFC 6901).
package jsonpatch
