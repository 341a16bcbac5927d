package revision

import (
	"cmp"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// CustomVersion is what people call this version of a set. A set that was stored
// as v1beta1, and that no webhook has converted, says so in its spec alone.
func CustomVersion(set *v1alpha1.SidecarSet) string {
	return cmp.Or(set.Labels[v1alpha1.CustomVersionLabel], set.Spec.CustomVersion)
}
