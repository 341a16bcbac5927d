package rollout

import (
	"time"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// letGo is how long a run of a SidecarSet that was deleted may go on
	// writing: until its worker's cache shows the deletion, or its worker is
	// known to be lost.
	letGo = 15 * time.Second
	// clockStep is the precision of the timestamps that are compared.
	clockStep = time.Second
)

// Quiet is when a set may be planned for. It is later than its creation only
// when a set of the same name was rolled out shortly before: runs of two
// incarnations do not know of each other, so the new one waits until the old
// one must have let go. One whose run has begun to write has waited: what was
// touched since may be its own work.
func Quiet(set *v1alpha1.SidecarSet, pods []Pod, begun bool) time.Time {
	created := set.CreationTimestamp.Time
	if begun {
		return created
	}
	for i := range pods {
		if at := pods[i].TouchedAt; at.After(created.Add(-letGo)) && !at.After(created.Add(clockStep)) {
			return created.Add(letGo)
		}
	}
	return created
}
