package pods

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/stage"
)

// policies contains the RolloutPolicies from an informer. While the watch of the informer is interrupted, the
// last observed policies apply. A step in progress does not depend on the watch, because the status of the
// SidecarSet contains the step. The zero value is ready for concurrent use.
type policies struct {
	mu     sync.Mutex
	byName map[string]outriggerv1.RolloutPolicy
	list   atomic.Pointer[policyList]
}

// policyList is an immutable list of all policies.
type policyList struct{ items []outriggerv1.RolloutPolicy }

// stepShare is the share of the new pods that get the newest content of a SidecarSet.
type stepShare struct {
	inject.Share
	of *policyList
}

// PolicyEventHandler returns the event handler for the informer of RolloutPolicies.
func (h *Handler) PolicyEventHandler() cache.ResourceEventHandler {
	p := &h.policies
	return events(
		func(policy *outriggerv1.RolloutPolicy) { p.change(func() { p.byName[policy.Name] = *policy }) },
		func(name string) { p.change(func() { delete(p.byName, name) }) })
}

func (p *policies) change(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byName == nil {
		p.byName = map[string]outriggerv1.RolloutPolicy{}
	}
	change()
	list := &policyList{}
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		list.items = append(list.items, p.byName[name])
	}
	p.list.Store(list)
}

// newPods returns the share of the new pods that get the newest content. newPods computes the share again
// only after a change of the SidecarSet or of the policies.
func (h *Handler) newPods(set *compiledSet) inject.Share {
	if set.quarantined || h.fleet && !set.permitted {
		return inject.Share{}
	}
	list := h.policies.list.Load()
	if last := set.share.Load(); last != nil && last.of == list {
		return last.Share
	}
	var known []outriggerv1.RolloutPolicy
	if list != nil {
		known = list.items
	}
	share, err := stage.NewPods(set.declared, known)
	if err != nil {
		h.sets.log.Error(err, "new pods get the last good revision: the step of the rollout cannot be read", "sidecarset", set.name)
	}
	set.share.Store(&stepShare{Share: share, of: list})
	return share
}
