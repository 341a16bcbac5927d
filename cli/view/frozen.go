package view

import (
	"strings"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// isFrozen reports whether a reason of Progressing is a RolloutFreeze, or the windows of a
// RolloutPolicy.
func isFrozen(reason string) bool {
	return reason == v1alpha1.ReasonFrozen || reason == v1alpha1.ReasonOutsideWindow
}

// frozen sets the phase of a rollout that the operator reports as frozen.
func (r *Rollout) frozen() {
	if !r.Observed || r.Counts.Remaining == 0 || r.Phase != protocol.PhaseProgressing && r.Phase != protocol.PhaseWaiting {
		return
	}
	for _, c := range r.Conditions {
		if c.Type == v1alpha1.ConditionProgressing && isFrozen(c.Reason) {
			r.Phase, r.Message = protocol.PhaseFrozen, c.Message
		}
	}
}

// frozenBy names the freeze of a frozen rollout. The message also has the counts of the plan.
func (r *Rollout) frozenBy() string {
	if r.Phase != protocol.PhaseFrozen {
		return ""
	}
	by := r.Message
	if counts := strings.LastIndex(by, " pods updated, "); counts >= 0 {
		by = by[:max(strings.LastIndex(by[:counts], "; "), 0)]
	}
	return strings.TrimPrefix(by, "frozen ")
}
