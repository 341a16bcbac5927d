package policies

import (
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

// Evicting contains the SidecarSets whose outdated pods are evicted (SPEC 13). Evicting is safe for concurrent
// use.
type Evicting struct {
	// changes receives an event after each change.
	changes chan<- event.GenericEvent
	// sets contains true for a SidecarSet whose outdated pods are evicted, and false for a SidecarSet whose
	// evictions were not read yet.
	sets atomic.Pointer[map[string]bool]
}

// NewEvicting returns an Evicting without SidecarSets. changes receives an event after each change.
func NewEvicting(changes chan<- event.GenericEvent) *Evicting {
	return &Evicting{changes: changes}
}

// Evicts reports whether the outdated pods of set are evicted. evicts is false while the evictions are paused
// or have failed. known is false until the policies and their evictions have been read.
func (e *Evicting) Evicts(set string) (evicts, known bool) {
	sets := e.sets.Load()
	if sets == nil {
		return false, false
	}
	evicts, found := (*sets)[set]
	return evicts, evicts || !found
}

func (e *Evicting) store(sets map[string]bool) {
	if before := e.sets.Swap(&sets); before != nil && maps.Equal(*before, sets) {
		return
	}
	select {
	case e.changes <- event.GenericEvent{Object: &v1alpha1.SidecarSet{}}:
	default: // an event that is already in the channel has the same effect
	}
}

// evictingSets returns true for each SidecarSet whose outdated pods are evicted, and false for each SidecarSet
// whose evictions were not read yet. statuses contains the status of each policy, in the order of policies.
// left contains, for each policy whose evictions were read, the names of the SidecarSets whose outdated pods are
// never evicted.
func evictingSets(sets []v1alpha1.SidecarSet, policies []outriggerv1.RolloutPolicy, statuses []outriggerv1.RolloutPolicyStatus, left map[types.UID][]string) (map[string]bool, error) {
	evicting := map[string]bool{}
	for i := range sets {
		applies, err := stage.PolicyOf(&sets[i], policies)
		if err != nil {
			return nil, err
		}
		if applies == nil || !applies.Spec.Evicts() {
			continue
		}
		at := slices.IndexFunc(policies, func(p outriggerv1.RolloutPolicy) bool { return p.Name == applies.Name })
		status := statuses[at].Evictions
		if status != nil && (status.Paused || slices.ContainsFunc(status.Failed, func(f outriggerv1.FailedEviction) bool {
			return f.SidecarSet == sets[i].Name && f.SidecarSetUID == sets[i].UID && f.Generation == sets[i].Generation
		})) {
			continue
		}
		names, read := left[applies.UID]
		if !slices.Contains(names, sets[i].Name) {
			evicting[sets[i].Name] = read
		}
	}
	return evicting, nil
}
