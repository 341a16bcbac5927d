package rollout

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
)

// Refill is what a batch may do next, by a plan made now.
type Refill struct {
	// Now are pods to upgrade, in the order of the batch, and Left those that
	// must wait.
	Now, Left []protocol.SelectedPod
	// Others says that pods which the batch does not hold may move, and none of
	// its own: a new batch would.
	Others bool
}

// Refill divides what is left of a batch. unseen counts writes of the batch that
// the plan's population does not show; tried pods were taken by it. A pod that
// the plan would not name first is taken all the same while there is room: it
// was next when the batch was made.
func (p *Plan) Refill(left []protocol.SelectedPod, tried map[protocol.PodReference]bool, unseen int) Refill {
	var refill Refill
	candidates := p.candidatesAmong(left)
	slots, quota := max(p.Free-unseen, 0), max(p.Counts.Remaining-unseen, 0)
	for _, chosen := range left {
		pod := candidates[chosen.UID]
		switch {
		case pod == nil || pod.Waits() || quota == 0 || pod.Ready && slots == 0:
			refill.Left = append(refill.Left, chosen)
			continue
		case pod.Ready:
			slots--
		}
		quota--
		refill.Now = append(refill.Now, protocol.SelectedPod{PodReference: chosen.PodReference, Unready: !pod.Ready})
	}
	refill.Others = len(refill.Now) == 0 && unseen == 0 && p.offersOthers(candidates, tried)
	return refill
}

func (p *Plan) candidatesAmong(pods []protocol.SelectedPod) map[types.UID]*Pod {
	found := make(map[types.UID]*Pod, len(pods))
	for _, pod := range pods {
		found[pod.UID] = nil
	}
	for i := range p.candidates {
		pod := p.candidates[i].Pod
		if _, ok := found[pod.UID]; ok {
			found[pod.UID] = pod
		}
	}
	return found
}

func (p *Plan) offersOthers(held map[types.UID]*Pod, tried map[protocol.PodReference]bool) bool {
	for _, pod := range p.Pods {
		if _, ok := held[pod.UID]; !ok && !tried[pod.PodReference] {
			return true
		}
	}
	return false
}
