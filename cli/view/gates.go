package view

import (
	"strings"

	"github.com/outrigger/outrigger/api/protocol"
)

// gatesOf returns the gates of the current step.
func gatesOf(s *protocol.Stage) (gates []protocol.GateState) {
	if s.Step == nil {
		return nil
	}
	for i := range s.Step.Gates {
		gates = append(gates, s.StateOf(s.Step.Gates[i].Name))
	}
	return gates
}

// gateLines returns a line for each gate of a step.
func (p *Step) gateLines(s Style) (lines []string) {
	for _, gate := range p.Gates {
		line := "  gate " + gate.Name + ": " + strings.ToLower(string(gate.Phase))
		if gate.Message != "" {
			line += ", " + gate.Message
		}
		lines = append(lines, s.Paint.in(toneOfGate(gate.Phase), line))
	}
	return lines
}

func toneOfGate(phase protocol.GatePhase) Tone {
	switch phase {
	case protocol.GateSuccess:
		return Good
	case protocol.GateFailure, protocol.GateInconclusive:
		return Bad
	case protocol.GateRunning:
		return Busy
	}
	return Faint
}
