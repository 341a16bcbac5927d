package rollout

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
)

// Refill divides the remaining pods of a batch according to a new plan.
type Refill struct {
	// Now contains the pods to upgrade, in the order of the batch. Left contains the pods that
	// must wait.
	Now, Left []protocol.SelectedPod
	// SlotWanted contains the pods of Left that may take the slot of any pod whose write is rejected. SlotWanted
	// is empty if the policy also limits the unavailable pods.
	SlotWanted []protocol.SelectedPod
	// OnlyOthers is set if no pod of the batch can be upgraded now, but pods outside the batch can. A new batch
	// would upgrade these pods.
	OnlyOthers bool
}

// Refill divides the pods in left, the remaining pods of a batch, into pods to upgrade now and pods that must
// wait. unseen is the number of writes of the batch that the population of the plan does not show. tried
// contains the pods that the batch has tried to upgrade. The value in tried is false for a pod that was not
// written and therefore uses no slot. The batch keeps its order while slots are open, even if the new plan
// selects other pods first.
func (p *Plan) Refill(left []protocol.SelectedPod, tried map[protocol.PodReference]bool, unseen int) Refill {
	var refill Refill
	candidates := p.candidatesAmong(left)
	slots, quota := max(p.OpenSlots-unseen, 0), max(p.allowed-unseen, 0)
	limits := p.scope.limits(tried)
	for _, selected := range left {
		pod := candidates[selected.UID]
		switch {
		case pod == nil || pod.Waits() || quota == 0 || pod.NeedsSlot() && slots == 0 || limits.full(pod) != nil:
			refill.Left = append(refill.Left, selected)
			if pod != nil && !pod.Waits() && pod.NeedsSlot() && p.scope == nil {
				refill.SlotWanted = append(refill.SlotWanted, protocol.SelectedPod{PodReference: selected.PodReference})
			}
			continue
		case pod.NeedsSlot():
			slots--
		}
		limits.take(pod)
		quota--
		refill.Now = append(refill.Now, protocol.SelectedPod{PodReference: selected.PodReference, Unready: !pod.NeedsSlot()})
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
		_, inBatch := ofBatch[pod.UID]
		if _, isTried := tried[pod.PodReference]; !inBatch && !isTried {
			return true
		}
	}
	return false
}
