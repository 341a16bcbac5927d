package protocol

import (
	"fmt"
	"slices"
	"time"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
)

// GatePhase is the state of a gate, or the result of a measurement.
type GatePhase string

// These are the phases of a gate. The phase of a measurement is GateRunning, GateSuccess, GateFailure or
// GateInconclusive.
const (
	GatePending      GatePhase = "Pending"
	GateRunning      GatePhase = "Running"
	GateSuccess      GatePhase = "Success"
	GateFailure      GatePhase = "Failure"
	GateInconclusive GatePhase = "Inconclusive"
)

// MaxMeasurements is the number of measurements that a gate keeps.
const MaxMeasurements = 5

// GateState is the progress of a gate of a step.
type GateState struct {
	Name    string    `json:"name"`
	Phase   GatePhase `json:"phase"`
	Message string    `json:"message,omitempty"`
	// Samples counts the samples. Failed and Inconclusive count the samples with these phases.
	Samples      int `json:"samples,omitempty"`
	Failed       int `json:"failed,omitempty"`
	Inconclusive int `json:"inconclusive,omitempty"`
	// Measurements are the last measurements, the newest at the end.
	Measurements []Measurement `json:"measurements,omitempty"`
}

// Measurement is one measurement of a gate.
type Measurement struct {
	// Value is the measured number as text, because JSON has no NaN. If the measurement has no number, Value
	// is empty.
	Value   string    `json:"value,omitempty"`
	Phase   GatePhase `json:"phase"`
	Message string    `json:"message,omitempty"`
	Time    time.Time `json:"time,omitzero"`
}

// MeasureGateInput is the input of the activity MeasureGate.
type MeasureGateInput struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Generation int64        `json:"generation"`
	Policy     string       `json:"policy"`
	// Step is the name of the step, or the number of a step without a name.
	Step string                  `json:"step"`
	Gate outriggerv1.RolloutGate `json:"gate"`
	// Previous is the value of the latest earlier measurement that has a value. If no earlier measurement has
	// a value, Previous is empty.
	Previous string `json:"previous,omitempty"`
	// Pods is the number of updated pods.
	Pods int `json:"pods"`
	// Reached is the time at which the step was reached. Attempt increases with each resume that restarts the
	// gates. Reached and Attempt identify the workflow of a WorkflowGate.
	Reached time.Time `json:"reached"`
	Attempt int       `json:"attempt,omitempty"`
	// NotBefore is the time at which the measurement is due, by the clock of Temporal. Before this time, the
	// activity fails with an error of the type GateNotDue, and Temporal retries the activity at this time.
	// Such a wait adds no event to the history, and does not occupy a worker.
	NotBefore time.Time `json:"notBefore,omitzero"`
}

// GateNotDue is the type of the error of a measurement that is not due.
const GateNotDue = "GateNotDue"

// OpenGate returns the first gate of the current step that has not succeeded, or nil.
func (s *Stage) OpenGate() *outriggerv1.RolloutGate {
	if s.Step == nil {
		return nil
	}
	for i := range s.Step.Gates {
		if s.StateOf(s.Step.Gates[i].Name).Phase != GateSuccess {
			return &s.Step.Gates[i]
		}
	}
	return nil
}

// ApprovalSince returns the time since which a reached step waits only for the approval: the end of the bake
// time, or the last measurement of a gate if this measurement is later.
func (s *Stage) ApprovalSince() time.Time {
	since := s.BakeEnd()
	for i := range s.Gates {
		for _, measured := range s.Gates[i].Measurements {
			if measured.Time.After(since) {
				since = measured.Time
			}
		}
	}
	return since
}

// StateOf returns the state of the gate of the step with the given name. A gate without measurements is in
// phase GatePending.
func (s *Stage) StateOf(name string) GateState { return GateOf(s.Gates, name) }

// GateOf returns the state of the gate with the given name. A gate that is not in states is in phase
// GatePending.
func GateOf(states []GateState, name string) GateState {
	for i := range states {
		if states[i].Name == name {
			return states[i]
		}
	}
	return GateState{Name: name, Phase: GatePending}
}

// WithGate returns a copy of the stage in which state replaces the former state of the same gate. state is the
// last element of Gates.
func (s *Stage) WithGate(state GateState) *Stage {
	next := *s
	next.Gates = WithGate(s.Gates, state)
	return &next
}

// WithGate returns a copy of states in which state replaces the former state of the same gate. state is the
// last element of the copy.
func WithGate(states []GateState, state GateState) []GateState {
	kept := slices.DeleteFunc(slices.Clone(states), func(known GateState) bool { return known.Name == state.Name })
	return append(kept, state)
}

// EndedGate returns the first gate of the step whose state has the given phase, or nil.
func (s *Stage) EndedGate(phase GatePhase) *GateState {
	if s == nil || s.Step == nil {
		return nil
	}
	for i := range s.Gates {
		if s.Gates[i].Phase == phase {
			return &s.Gates[i]
		}
	}
	return nil
}

// Awaited describes the wait for the gate for users. title is the title of the step of the gate.
func (s GateState) Awaited(title string) string {
	message := fmt.Sprintf("%s waits for gate %s", title, s.Name)
	if s.Message != "" {
		message += ": " + s.Message
	}
	return message
}
