package operator

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// stalled returns the condition Stalled, which is true if the rollout cannot end without a change by a user
// (SPEC 8.8). Stalled is false during an outage of Temporal or of the workers, because the rollout continues
// after the outage.
func stalled(p *pass, degraded condition) condition {
	switch degraded.reason {
	case v1alpha1.ReasonInvalid, v1alpha1.ReasonRolloutFailing, v1alpha1.ReasonRunUnreadable:
		return yes(degraded.reason, degraded.message)
	}
	// Degraded reports only the most severe problem, so other problems that stall the rollout are checked
	// here.
	switch {
	case p.rollsBack():
		return quarantined(p)
	case p.leavesPods() && !p.evicts:
		return notUpgradable(p)
	case degraded.reason == p.broken.Reason && p.stuck():
		return yes(degraded.reason, degraded.message)
	}
	return no(v1alpha1.ReasonAsExpected, "")
}

// stuck reports whether the rollout waits only for broken pods, which are pods with sidecars that cannot
// start. If the current step has more pods to upgrade, the rollout is stuck while broken pods use all slots.
// Otherwise, the rollout is stuck if only broken pods have not converged.
func (p *pass) stuck() bool {
	counts := &p.plan.Counts
	if p.broken.UsingSlots == 0 || p.plan.Phase != protocol.PhaseWaiting {
		return false
	}
	if counts.Remaining > 0 && !p.plan.StepFull {
		return p.broken.UsingSlots >= p.plan.MaxUnavailable
	}
	return p.broken.UsingSlots >= counts.Converging
}

// ready returns the condition Ready, which is true if the rollout of the generation has ended (SPEC 8.8).
func ready(progressing, stalled condition) condition {
	if stalled.status == metav1.ConditionTrue {
		return no(stalled.reason, stalled.message)
	}
	switch progressing.reason {
	case v1alpha1.ReasonRolloutComplete, v1alpha1.ReasonPartitionReached, v1alpha1.ReasonNotUpdate:
		return yes(progressing.reason, progressing.message)
	}
	return no(progressing.reason, progressing.message)
}
