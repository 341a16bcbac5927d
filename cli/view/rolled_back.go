package view

import (
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// rolledBack sets the phase, the message and the remaining pods of a rollout that is rolled back. If the
// revision of the rollback is not found, rolledBack uses the conditions in the status.
func (r *Rollout) rolledBack(in *Input) error {
	if r.retried {
		return nil
	}
	if r.stage != nil && r.stage.Quarantine != nil && r.stage.Quarantine.Hash == in.Set.Annotations[v1alpha1.HashAnnotation] {
		if former := revision.Named(in.Revisions, r.stage.Quarantine.Revision); former != nil {
			target, err := stage.Target(in.Set, former)
			if err != nil {
				return err
			}
			return r.planRollback(in, target)
		}
	}
	if !r.Observed {
		return nil
	}
	for _, c := range r.Conditions {
		if c.Type == v1alpha1.ConditionProgressing && isRolledBack(c.Reason) {
			r.Phase, r.Message, r.rollback = protocol.PhaseQuarantined, c.Message, c.Reason
		}
	}
	return nil
}

// planRollback plans the rollback with the planner of the worker, and shows the freeze that stops the
// rollback. target is the SidecarSet with the content of the good revision.
func (r *Rollout) planRollback(in *Input, target *v1alpha1.SidecarSet) error {
	pods, err := rollout.Population(target, in.Pods, in.NamespaceLabels)
	if err != nil {
		return err
	}
	confirmed := *r.stage
	confirmed.Generation = target.Generation
	plan, err := rollout.NextInStage(target, pods, nil, &confirmed)
	if err != nil {
		return err
	}
	r.Phase, r.Message, r.Counts.Remaining = plan.Phase, plan.Message, plan.Counts.Remaining
	if stage.QuarantineOf(in.Set) != nil { // Otherwise, the operator wrote the conditions before the rollback.
		r.frozen()
	}
	if r.Phase == protocol.PhaseFrozen {
		return nil
	}
	r.rollback = v1alpha1.ReasonRollingBack
	if plan.Phase == protocol.PhaseQuarantined {
		r.rollback = v1alpha1.ReasonQuarantined
	}
	r.Phase = protocol.PhaseQuarantined
	return nil
}

// isRolledBack reports whether a reason of Progressing is a rollback in progress or a completed rollback.
func isRolledBack(reason string) bool {
	return reason == v1alpha1.ReasonRollingBack || reason == v1alpha1.ReasonQuarantined
}
