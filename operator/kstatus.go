package operator

import (
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Tools that wait for any kind of object, such as Flux, Argo CD and helm --wait, read the
// conditions Ready and Stalled (SPEC 8.8).

// stalled decides whether the rollout needs somebody: it does not end by waiting. An outage of
// Temporal or of the workers does.
func stalled(p *pass, degraded condition) condition {
	switch degraded.reason {
	case v1alpha1.ReasonInvalid, v1alpha1.ReasonRolloutFailing, v1alpha1.ReasonRunUnreadable:
		return yes(degraded.reason, degraded.message)
	case v1alpha1.ReasonNotUpgradablePods:
		if !p.unfinished() {
			return yes(degraded.reason, degraded.message)
		}
	case p.broken.reason:
		if p.stuck() {
			return yes(degraded.reason, degraded.message)
		}
	}
	return no(v1alpha1.ReasonAsExpected, "")
}

// stuck reports whether pods whose sidecars cannot start use all slots, or are the only ones
// left.
func (p *pass) stuck() bool {
	counts := &p.plan.Counts
	if p.broken.count == 0 || p.plan.Phase != protocol.PhaseWaiting {
		return false
	}
	if counts.Remaining > 0 {
		return p.broken.count >= p.plan.MaxUnavailable
	}
	return p.broken.count >= counts.Converging
}

// ready decides whether the rollout of the generation has ended.
func ready(progressing, stalled condition) condition {
	if stalled.status == "True" {
		return no(stalled.reason, stalled.message)
	}
	switch progressing.reason {
	case v1alpha1.ReasonRolloutComplete, v1alpha1.ReasonPartitionReached, v1alpha1.ReasonNotUpdate:
		return yes(progressing.reason, progressing.message)
	}
	return no(progressing.reason, progressing.message)
}
