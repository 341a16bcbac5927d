package view

import (
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// rolledBack sets the phase of a rollout that the operator reports as rolled back. The plan of this
// command is of the newest content, which pods must not get.
func (r *Rollout) rolledBack() {
	if !r.Observed {
		return
	}
	for _, c := range r.Conditions {
		if c.Type == v1alpha1.ConditionProgressing && isRolledBack(c.Reason) {
			r.Phase, r.Message = protocol.PhaseQuarantined, c.Message
		}
	}
}

// isRolledBack reports whether a reason of Progressing is a rollback, or its end.
func isRolledBack(reason string) bool {
	return reason == v1alpha1.ReasonRollingBack || reason == v1alpha1.ReasonQuarantined
}
