package rollout

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// owners limits the pods of one owner that upgrades make unavailable at once (SPEC §11.9). An owner is the
// controller of a pod, such as a ReplicaSet. A pod without a controller is not limited.
type owners struct {
	limit       int
	unavailable map[types.UID]int
}

func newOwners(limit int) *owners {
	return &owners{limit: limit, unavailable: map[types.UID]int{}}
}

func (o *owners) needs(pod *Pod) bool { return pod.NeedsSlot() }

func (o *owners) full(pod *Pod) bool { return o.unavailable[ownerOf(pod)] >= o.limit }

func (o *owners) take(pod *Pod) {
	if owner := ownerOf(pod); owner != "" {
		o.unavailable[owner]++
	}
}

func (o *owners) wants(*Pod) string {
	return fmt.Sprintf("a slot of its owner (maxUnavailablePerOwner %d)", o.limit)
}

func ownerOf(pod *Pod) types.UID {
	if controller := metav1.GetControllerOfNoCopy(pod.Pod); controller != nil {
		return controller.UID
	}
	return ""
}
