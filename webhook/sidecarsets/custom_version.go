package sidecarsets

import (
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/jsonpatch"
)

// customVersionDifference returns what labels a set with the version that it had
// in its spec.
func customVersionDifference(written, completed map[string]string) []jsonpatch.Operation {
	version := completed[v1alpha1.CustomVersionLabel]
	switch {
	case version == written[v1alpha1.CustomVersionLabel]:
		return nil
	case len(written) == 0:
		return []jsonpatch.Operation{{Op: "add", Path: jsonpatch.Pointer("metadata", "labels"), Value: completed}}
	}
	return []jsonpatch.Operation{{Op: "add", Path: jsonpatch.Pointer("metadata", "labels", v1alpha1.CustomVersionLabel), Value: version}}
}
