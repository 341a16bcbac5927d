package rollout

import (
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// Ended reports whether every pod has the version that the rollout has for it.
func (p *Plan) Ended() bool {
	return p.Phase == protocol.PhaseComplete || p.Phase == protocol.PhasePartitionReached
}

// MayHaveEnded reports whether the rollout waits only for pods that are unavailable with the
// version. If its run has ended by itself, each of them was available before.
func (p *Plan) MayHaveEnded() bool {
	return p.Phase == protocol.PhaseWaiting && p.Counts.Remaining+p.Counts.Migrating == 0
}

// EndToRecord reports whether the rollout has ended by the plan, or may have, and status does
// not show it: the content is not the last good revision, or was rolled out again since.
// Content is good only if a ready pod has it.
func EndToRecord(set *v1alpha1.SidecarSet, version *podstate.Version, plan *Plan, pods []Pod) bool {
	if !plan.Ended() && !plan.MayHaveEnded() || plan.Counts.UpdatedReady == 0 {
		return false
	}
	last := set.Status.LastGoodRevision()
	if last == nil || last.Hash != version.Hash {
		return true
	}
	for i := range pods {
		if pod := &pods[i]; pod.Updated && pod.UpgradedInPlace && !pod.RolloutEnded {
			return true
		}
	}
	return false
}

// WithGood returns the good revisions with a new one first.
func WithGood(known []v1alpha1.GoodRevision, good v1alpha1.GoodRevision) []v1alpha1.GoodRevision {
	all := []v1alpha1.GoodRevision{good}
	for _, one := range known {
		if one.Hash != good.Hash && len(all) < v1alpha1.MaxGoodRevisions {
			all = append(all, one)
		}
	}
	return all
}
