package rollout

import "github.com/outrigger/outrigger/api/protocol"

// Freeze removes the upgrades from a plan during a RolloutFreeze, and outside the windows. The
// message of the plan then begins with the given message. Like a pause, it also removes the writes
// of conditions. A plan without remaining pods needs no upgrade and stays as it is. A reached step
// stays reached, so that its bake time passes.
func (p *Plan) Freeze(message string) {
	if p.Counts.Remaining == 0 || p.Phase != protocol.PhaseProgressing && p.Phase != protocol.PhaseWaiting {
		return
	}
	p.Pods, p.Queued, p.FalseConditions, p.TrueConditions = nil, nil, nil, nil
	p.Phase, p.Frozen = protocol.PhaseFrozen, message
	p.Message = message + "; " + p.message()
}
