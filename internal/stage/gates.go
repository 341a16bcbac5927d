package stage

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// gatesOf returns the definitions of the gates of a step, in the order of the step. The API server rejects
// a step that names a gate that the policy does not have.
func gatesOf(step *outriggerv1.RolloutStep, policy *outriggerv1.RolloutPolicySpec) (gates []outriggerv1.RolloutGate) {
	for _, name := range step.Gates {
		for i := range policy.Gates {
			if policy.Gates[i].Name == name {
				gates = append(gates, *policy.Gates[i].DeepCopy())
			}
		}
	}
	return gates
}

// gatesOfStatus adds the gates that are recorded in status to a stage.
func gatesOfStatus(s *protocol.Stage, recorded *v1alpha1.RolloutStage) {
	s.GateAttempt = int(recorded.GateAttempt)
	for i := range recorded.Gates {
		gate := &recorded.Gates[i]
		s.Step.Gates = append(s.Step.Gates, definitionOf(gate))
		if gate.Phase == string(protocol.GatePending) {
			continue
		}
		state := protocol.GateState{
			Name: gate.Name, Phase: protocol.GatePhase(gate.Phase), Message: gate.Message,
			Samples: int(gate.Samples), Failed: int(gate.FailedSamples), Inconclusive: int(gate.InconclusiveSamples),
		}
		for _, m := range gate.Measurements {
			state.Measurements = append(state.Measurements, protocol.Measurement{Value: m.Value, Phase: protocol.GatePhase(m.Phase), Message: m.Message, Time: m.Time.Time})
		}
		s.Gates = append(s.Gates, state)
	}
}

// definitionOf returns the definition of a recorded gate. If the definition is invalid, for example because a
// user has edited status, the gate has no kind, and is inconclusive.
func definitionOf(recorded *v1alpha1.StageGate) outriggerv1.RolloutGate {
	var gate outriggerv1.RolloutGate
	if json.Unmarshal([]byte(recorded.Definition), &gate) != nil || gate.Name != recorded.Name {
		return outriggerv1.RolloutGate{Name: recorded.Name}
	}
	return gate
}

// gatesToStatus records the gates of a stage in status.
func gatesToStatus(recorded *v1alpha1.RolloutStage, s *protocol.Stage) {
	recorded.GateAttempt = int32(s.GateAttempt)
	for i := range s.Step.Gates {
		state := s.StateOf(s.Step.Gates[i].Name)
		definition, _ := json.Marshal(&s.Step.Gates[i]) // cannot fail, because a gate has only strings and durations
		gate := v1alpha1.StageGate{
			Name: s.Step.Gates[i].Name, Definition: string(definition), Phase: string(state.Phase), Message: state.Message,
			Samples: int32(state.Samples), FailedSamples: int32(state.Failed), InconclusiveSamples: int32(state.Inconclusive),
		}
		for _, m := range state.Measurements {
			gate.Measurements = append(gate.Measurements, v1alpha1.GateMeasurement{
				Value: m.Value, Phase: string(m.Phase), Message: m.Message, Time: metav1.NewMicroTime(m.Time.UTC().Truncate(time.Microsecond)),
			})
		}
		recorded.Gates = append(recorded.Gates, gate)
	}
}
