package stage

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// QuarantineOf returns the quarantine that status records for the content of a completed SidecarSet, or nil
// (SPEC §11.12). The quarantine also applies to later generations with the same content.
func QuarantineOf(set *v1alpha1.SidecarSet) *v1alpha1.RolloutQuarantine {
	rollout := set.Status.Rollout
	if rollout == nil || rollout.Quarantine == nil || rollout.Quarantine.Hash != set.Annotations[v1alpha1.HashAnnotation] {
		return nil
	}
	return rollout.Quarantine
}

// RollsBack returns the quarantine if a run with this stage rolls back the generation, or nil. A quarantine of
// an earlier generation applies only after Resolve has compared the hash of the quarantine with the content.
func RollsBack(s *protocol.Stage, generation int64) *protocol.Quarantine {
	if s == nil || s.Generation != generation {
		return nil
	}
	return s.Quarantine
}

// Target returns the SidecarSet to which a rollback upgrades pods. The result is a copy of set with the content
// of the recorded revision, but has no partition, update selector or scatter, because these settings do not apply
// to a rollback. Target returns an error if the content cannot be read.
func Target(set *v1alpha1.SidecarSet, recorded *appsv1.ControllerRevision) (*v1alpha1.SidecarSet, error) {
	target, err := revision.WithContentOf(set, recorded)
	if err != nil {
		return nil, err
	}
	target.Status.LatestRevision, target.Status.ObservedGeneration = recorded.Name, target.Generation
	strategy := &target.Spec.UpdateStrategy
	strategy.Partition, strategy.Selector, strategy.ScatterStrategy = nil, nil, nil
	return target, nil
}

// isTarget reports whether set is a result of Target for the rollback of q.
func isTarget(set *v1alpha1.SidecarSet, q *protocol.Quarantine) bool {
	return set.Status.LatestRevision == q.Revision && set.Status.ObservedGeneration == set.Generation
}

// carried returns the stage of an earlier generation for the next generation if the content is the same, and
// the earlier rollout was aborted or is rolled back. Otherwise, carried returns the first stage of the next
// generation, which keeps Retried if the content is the same.
func carried(set *v1alpha1.SidecarSet, earlier *protocol.Stage) *protocol.Stage {
	hash := set.Annotations[v1alpha1.HashAnnotation]
	next := protocol.Stage{}
	if q := earlier.Quarantine; q != nil && q.Hash == hash || earlier.Aborted != nil && earlier.Hash == hash && hash != "" {
		next = *earlier
	} else if earlier.Hash == hash {
		next.Retried = earlier.Retried
	}
	next.Generation = set.Generation
	return &next
}
