package rollout

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
)

// Refill is the next step of a batch by a new plan.
type Refill struct {
	// Now are the pods to upgrade, in the order of the batch. Left are the pods that
	// must wait.
	Now, Left []protocol.SelectedPod
	// SlotWanted are the pods of Left that wait only for a slot.
	SlotWanted []protocol.SelectedPod
	// OnlyOthers is set when pods outside the batch can be upgraded, and none of its own:
	// a new batch would upgrade them.
	OnlyOthers bool
}

// Refill divides the rest of a batch. unseen counts the writes of the batch that the
// population of the plan does not show; tried are the pods that the batch has tried. A
// pod stays next while slots are open, even if the new plan selects others before it.
func (p *Plan) Refill(left []protocol.SelectedPod, tried map[protocol.PodReference]bool, unseen int) Refill {
	var refill Refill
	candidates := p.candidatesAmong(left)
	slots, quota := max(p.OpenSlots-unseen, 0), max(p.Counts.Remaining-unseen, 0)
	for _, selected := range left {
		pod := candidates[selected.UID]
		switch {
		case pod == nil || pod.Waits() || quota == 0 || pod.Ready && slots == 0:
			refill.Left = append(refill.Left, selected)
			if pod != nil && !pod.Waits() && pod.Ready {
				refill.SlotWanted = append(refill.SlotWanted, protocol.SelectedPod{PodReference: selected.PodReference})
			}
			continue
		case pod.Ready:
			slots--
		}
		quota--
		refill.Now = append(refill.Now, protocol.SelectedPod{PodReference: selected.PodReference, Unready: !pod.Ready})
	}
	refill.OnlyOthers = len(refill.Now) == 0 && unseen == 0 && p.selectsOthers(candidates, tried)
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

func (p *Plan) selectsOthers(ofBatch map[types.UID]*Pod, tried map[protocol.PodReference]bool) bool {
	for _, pod := range p.Pods {
		if _, ok := ofBatch[pod.UID]; !ok && !tried[pod.PodReference] {
			return true
		}
	}
	return false
}
