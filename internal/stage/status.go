package stage

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// OfStatus returns the stage that the status of a SidecarSet records for its generation. The result is nil if
// the status records no stage, or a step below 1, which a user may have written.
func OfStatus(set *v1alpha1.SidecarSet) *protocol.Stage {
	rollout := set.Status.Rollout
	if rollout == nil || rollout.Stage == nil || rollout.Stage.Step < 1 || rollout.Generation != set.Generation {
		return nil
	}
	recorded := rollout.Stage
	s := &protocol.Stage{
		Generation: set.Generation, Hash: set.Annotations[v1alpha1.HashAnnotation], Policy: rollout.Policy, Steps: int(recorded.Steps), Index: int(recorded.Step) - 1, Done: recorded.Done,
		Tolerated: int(recorded.ToleratedPods), Accept: recorded.AcceptFailedPods,
	}
	if recorded.UpTo != nil {
		s.Step = &protocol.Step{Name: recorded.Name, UpTo: *recorded.UpTo, Approval: recorded.Approval, MaxFailed: recorded.MaxFailedPods, Rollback: recorded.Rollback, MaxPerOwner: int(recorded.MaxUnavailablePerOwner)}
		s.Step.RespectBudgets = recorded.RespectPodDisruptionBudgets
		s.Step.UnreadyFor, s.Step.AppRestarts = durationOf(recorded.UnreadyFor), recorded.AppRestarts
		s.Step.ProgressDeadline = durationOf(recorded.ProgressDeadline)
		if domains := recorded.Domains; domains != nil {
			s.Step.Domains = &protocol.Domains{TopologyKey: domains.TopologyKey, MaxUnavailable: int(domains.MaxUnavailableDomains)}
		}
		for _, window := range recorded.Windows {
			s.Step.Windows = append(s.Step.Windows, protocol.Window{Schedule: window.Schedule, Duration: window.Duration.Duration, TimeZone: window.TimeZone})
		}
		s.Step.Bake = durationOf(recorded.Bake)
		gatesOfStatus(s, recorded)
	}
	if recorded.ReachedAt != nil {
		s.Reached = &recorded.ReachedAt.Time
	}
	if q := rollout.Quarantine; q != nil {
		s.Quarantine = &protocol.Quarantine{Hash: q.Hash, Revision: q.Revision, Reason: q.Reason, Since: q.Since.Time}
	}
	if by := recorded.ApprovedBy; by != nil {
		s.Approval = &protocol.Approval{By: by.By, Reason: by.Reason}
	}
	return s
}

// ForStart returns the stage for the start of a run: the stage of the generation, or a stage with the quarantine
// of an earlier generation with the same content.
func ForStart(set *v1alpha1.SidecarSet) *protocol.Stage {
	rollout := set.Status.Rollout
	if QuarantineOf(set) == nil || rollout.Generation == set.Generation && rollout.Stage != nil {
		return OfStatus(set)
	}
	earlier := *set
	earlier.Generation = rollout.Generation
	if s := OfStatus(&earlier); s != nil {
		return s // This stage contains the limits of the step.
	}
	q := rollout.Quarantine
	return &protocol.Stage{
		Generation: rollout.Generation, Policy: rollout.Policy, Steps: 1,
		Quarantine: &protocol.Quarantine{Hash: q.Hash, Revision: q.Revision, Reason: q.Reason, Since: q.Since.Time},
	}
}

// ForRollback returns the stage of the rollback of content whose rollout has ended. The limits of the last step
// apply to the rollback (SPEC 11.12.3).
func ForRollback(set *v1alpha1.SidecarSet, quarantine protocol.Quarantine) *protocol.Stage {
	rollback := &protocol.Stage{Generation: set.Generation, Steps: 1, Quarantine: &quarantine}
	if last := OfStatus(set); last != nil {
		rollback.Policy, rollback.Steps, rollback.Index, rollback.Step = last.Policy, last.Steps, last.Index, last.Step
	}
	return rollback
}

// ToStatus records a stage in the status of a SidecarSet. status.rollout must be set already.
func ToStatus(set *v1alpha1.SidecarSet, s *protocol.Stage) {
	recorded := &v1alpha1.RolloutStage{Step: int32(s.Index) + 1, Steps: int32(s.Steps), Done: s.Done, ToleratedPods: int32(s.Tolerated), AcceptFailedPods: s.Accept}
	if s.Step != nil {
		recorded.Name, recorded.UpTo, recorded.Approval = s.Step.Name, &s.Step.UpTo, s.Step.Approval
		recorded.Rollback = s.Step.Rollback
		recorded.MaxFailedPods, recorded.MaxUnavailablePerOwner = s.Step.MaxFailed, int32(s.Step.MaxPerOwner)
		recorded.RespectPodDisruptionBudgets = s.Step.RespectBudgets
		if domains := s.Step.Domains; domains != nil {
			recorded.Domains = &v1alpha1.StepDomains{TopologyKey: domains.TopologyKey, MaxUnavailableDomains: int32(domains.MaxUnavailable)}
		}
		for _, window := range s.Step.Windows {
			recorded.Windows = append(recorded.Windows, v1alpha1.StepWindow{Schedule: window.Schedule, Duration: metav1.Duration{Duration: window.Duration}, TimeZone: window.TimeZone})
		}
		recorded.UnreadyFor, recorded.AppRestarts = recordedDuration(s.Step.UnreadyFor), s.Step.AppRestarts
		recorded.Bake, recorded.ProgressDeadline = recordedDuration(s.Step.Bake), recordedDuration(s.Step.ProgressDeadline)
		gatesToStatus(recorded, s)
	}
	if s.Reached != nil {
		// The API server stores microseconds. A finer time would always differ from the stored time, so each
		// reconcile would write status.
		recorded.ReachedAt = new(metav1.NewMicroTime(s.Reached.UTC().Truncate(time.Microsecond)))
	}
	if s.Approval != nil {
		recorded.ApprovedBy = &v1alpha1.StepApproval{By: s.Approval.By, Reason: s.Approval.Reason}
	}
	rollout := set.Status.Rollout
	rollout.Policy, rollout.Stage, rollout.Quarantine = s.Policy, recorded, nil
	if q := s.Quarantine; q != nil {
		rollout.Quarantine = &v1alpha1.RolloutQuarantine{Hash: q.Hash, Revision: q.Revision, Reason: q.Reason, Since: metav1.NewTime(q.Since.UTC().Truncate(time.Second))}
	}
}

// Recorded reports whether the status of a SidecarSet shows a stage. The result is false for an aborted
// stage, because status does not show an abort before the rollback begins.
func Recorded(set *v1alpha1.SidecarSet, s *protocol.Stage) bool {
	if set.Status.Rollout == nil || set.Status.Rollout.Generation != s.Generation || s.Aborted != nil {
		return false
	}
	recorded := &v1alpha1.SidecarSet{}
	recorded.Status.Rollout = set.Status.Rollout.DeepCopy()
	ToStatus(recorded, s)
	return equality.Semantic.DeepEqual(recorded.Status.Rollout, set.Status.Rollout)
}

// recordedDuration returns nil for 0, so that status omits the field.
func recordedDuration(d time.Duration) *metav1.Duration {
	if d <= 0 {
		return nil
	}
	return &metav1.Duration{Duration: d}
}
