package fleet

import (
	"time"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/gate"
)

// openGate returns the first gate of the current stage that has not succeeded, or nil.
func openGate(s *protocol.FleetState) *outriggerv1.RolloutGate {
	if s.Stage >= len(s.Spec.Stages) {
		return nil
	}
	for _, name := range s.Spec.Stages[s.Stage].Gates {
		if protocol.GateOf(s.Gates, name).Phase != protocol.GateSuccess {
			return gateOf(&s.Spec, name)
		}
	}
	return nil
}

// gateOf returns a gate by its name. If the policy has no such gate, gateOf returns a gate without a kind,
// whose measurement is inconclusive.
func gateOf(spec *outriggerv1.FleetPolicySpec, name string) *outriggerv1.RolloutGate {
	for i := range spec.Gates {
		if spec.Gates[i].Name == name {
			return &spec.Gates[i]
		}
	}
	return &outriggerv1.RolloutGate{Name: name}
}

// measurementOf returns the next measurement of the open gate. s.Reached must be set.
func measurementOf(s *protocol.FleetState, open *outriggerv1.RolloutGate, now time.Time) *protocol.FleetGateInput {
	state := protocol.GateOf(s.Gates, open.Name)
	input := &protocol.FleetGateInput{
		Set: s.Set, Hash: s.Hash, Policy: s.Policy, Stage: s.Spec.Stages[s.Stage].Name, Gate: *open,
		Previous: gate.Previous(state), Reached: *s.Reached, Attempt: s.Attempt,
	}
	if wait := gate.Wait(open, state, now); wait > 0 {
		input.NotBefore = now.Add(wait)
	}
	return input
}

// Measured records a measurement for which the rollout is waiting, and ignores any other measurement. A failed
// gate stops the rollout with the action of spec.failure. An inconclusive gate pauses the rollout without a
// verdict about the content (SPEC 12.2.9).
func Measured(s *protocol.FleetState, input *protocol.FleetGateInput, measured protocol.Measurement, now time.Time) {
	open := openGate(s)
	if s.Phase != protocol.FleetRolling || open == nil || s.Reached == nil || !input.Same(measurementOf(s, open, now)) {
		return
	}
	measured.Time = now
	state := gate.Record(open, protocol.GateOf(s.Gates, open.Name), measured)
	s.Gates = protocol.WithGate(s.Gates, state)
	event := protocol.FleetEvent{Time: now, Hash: s.Hash, Stage: input.Stage, Reason: gate.Reason("stage "+input.Stage, state)}
	switch state.Phase {
	case protocol.GateFailure:
		event.What = "failed"
		stop(s, event.Reason, s.Spec.Failure.Action, began)
	case protocol.GateInconclusive:
		event.What = "paused"
		s.Phase, s.Message = protocol.FleetPaused, event.Reason
	default:
		return
	}
	note(s, event)
}
