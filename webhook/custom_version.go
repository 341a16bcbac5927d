package webhook

import (
	"strings"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
)

// customVersionDifference returns what labels a set with the version that it had
// in its spec.
func customVersionDifference(written, completed map[string]string) []inject.Operation {
	const path = "/metadata/labels"
	version := completed[v1alpha1.CustomVersionLabel]
	switch {
	case version == written[v1alpha1.CustomVersionLabel]:
		return nil
	case len(written) == 0:
		return []inject.Operation{{Op: "add", Path: path, Value: completed}}
	}
	escaped := strings.ReplaceAll(v1alpha1.CustomVersionLabel, "/", "~1")
	return []inject.Operation{{Op: "add", Path: path + "/" + escaped, Value: version}}
}
