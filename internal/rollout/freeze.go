package rollout

import "github.com/outrigger/outrigger/api/protocol"

// Freeze removes the upgrades and the writes of conditions from a plan during a RolloutFreeze, outside the
// windows, or without a permit of the fleet. The message of the plan then begins with message. A plan without
// remaining pods does not change, because no pod needs an upgrade. A plan with a reached step does not change, so
// that the bake time of the step passes.
func (p *Plan) Freeze(message string) {
	if p.Counts.Remaining == 0 || p.Phase != protocol.PhaseProgressing && p.Phase != protocol.PhaseWaiting {
		return
	}
	p.Pods, p.Queued, p.FalseConditions, p.TrueConditions = nil, nil, nil, nil
	p.Phase, p.Frozen = protocol.PhaseFrozen, message
	p.Message = message + "; " + p.message()
}
