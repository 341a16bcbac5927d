package rollout

import (
	"slices"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// Ended reports whether the rollout is complete, or has reached the partition.
func (p *Plan) Ended() bool {
	return p.Phase == protocol.PhaseComplete || p.Phase == protocol.PhasePartitionReached
}

// MayHaveEnded reports whether the rollout waits only for pods that have the version and are unavailable. If the
// run has completed, each of these pods was available with the version before it became unavailable.
func (p *Plan) MayHaveEnded() bool {
	return p.Phase == protocol.PhaseWaiting && p.Counts.Remaining+p.Counts.Migrating == 0
}

// EndToRecord reports whether status must record the end of the rollout. According to the plan, the rollout
// has ended or may have ended, but status does not show this end: the content is not the content of the last
// good revision, or was rolled out again after the last recorded end. The hash does not cover all fields of a
// revision, so the revisions are compared, too. Content is good only if a ready pod has the content.
func EndToRecord(set *v1alpha1.SidecarSet, version *podstate.Version, plan *Plan, pods []Pod) bool {
	if !plan.Ended() && !plan.MayHaveEnded() || plan.Counts.UpdatedReady == 0 {
		return false
	}
	last := set.Status.LastGoodRevision()
	if last == nil || last.Hash != version.Hash || last.Revision != set.Status.LatestRevision {
		return true
	}
	for i := range pods {
		if pod := &pods[i]; pod.Updated && pod.UpgradedInPlace && !pod.RolloutEnded {
			return true
		}
	}
	return false
}

// WithGood returns at most MaxGoodRevisions good revisions: good, followed by the known revisions with other
// content.
func WithGood(known []v1alpha1.GoodRevision, good v1alpha1.GoodRevision) []v1alpha1.GoodRevision {
	all := []v1alpha1.GoodRevision{good}
	for _, one := range known {
		if one.Hash != good.Hash && len(all) < v1alpha1.MaxGoodRevisions {
			all = append(all, one)
		}
	}
	return all
}

// WithoutQuarantined returns the good revisions without the quarantined content. A fleet may roll back
// content whose rollout has ended, and quarantined content is not good (SPEC 11.12.2).
func WithoutQuarantined(known []v1alpha1.GoodRevision, quarantine *v1alpha1.RolloutQuarantine) []v1alpha1.GoodRevision {
	if quarantine == nil {
		return known
	}
	return slices.DeleteFunc(slices.Clone(known), func(good v1alpha1.GoodRevision) bool { return good.Hash == quarantine.Hash })
}
