package rollout

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
)

// owners limits the pods of one owner that upgrades make unavailable at once (SPEC §11.9). An owner
// is the controller of a pod, such as a ReplicaSet. A pod without a controller has no limit.
type owners struct {
	// limit is 0 if owners have no limit.
	limit       int
	unavailable map[types.UID]int
}

// newOwners counts the pods that upgrades made unavailable. The value of tried is true for a pod that
// a batch has written, or is writing. Such a pod counts as unavailable until the population shows it
// as updated.
func newOwners(limit int, pods []Pod, tried map[protocol.PodReference]bool) *owners {
	o := &owners{limit: limit, unavailable: map[types.UID]int{}}
	if limit == 0 {
		return o
	}
	for i := range pods {
		pod := &pods[i]
		if owner := ownerOf(pod); owner != "" && (pod.UnavailableByUpgrade() || !pod.Updated && tried[pod.Reference()]) {
			o.unavailable[owner]++
		}
	}
	return o
}

// full reports whether the owner of a pod has no slot for the upgrade of the pod. A pod that is not
// ready needs no slot.
func (o *owners) full(pod *Pod) bool {
	return o.limit > 0 && pod.Ready && o.unavailable[ownerOf(pod)] >= o.limit
}

// take uses a slot of the owner of a pod.
func (o *owners) take(pod *Pod) {
	if o.limit == 0 || !pod.Ready {
		return
	}
	if owner := ownerOf(pod); owner != "" {
		o.unavailable[owner]++
	}
}

func ownerOf(pod *Pod) types.UID {
	if controller := metav1.GetControllerOf(pod.Pod); controller != nil {
		return controller.UID
	}
	return ""
}
