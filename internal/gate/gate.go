// Package gate decides whether a rollout continues after the measurements of a gate (SPEC §11.14). The package
// reads no clock and makes no measurement.
package gate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// These are the defaults of the intervals and of the timeout of gates.
const (
	defaultSampleInterval = time.Minute
	defaultAskInterval    = 30 * time.Second
	defaultTimeout        = 10 * time.Second
)

// Interval returns the time between two measurements of a gate.
func Interval(gate *outriggerv1.RolloutGate) time.Duration {
	switch {
	case gate.Prometheus != nil && gate.Prometheus.Interval != nil:
		return gate.Prometheus.Interval.Duration
	case gate.Prometheus != nil:
		return defaultSampleInterval
	case gate.Webhook != nil && gate.Webhook.Interval != nil:
		return gate.Webhook.Interval.Duration
	case gate.Workflow != nil && gate.Workflow.Interval != nil:
		return gate.Workflow.Interval.Duration
	}
	return defaultAskInterval
}

// Timeout returns the time limit of one measurement.
func Timeout(gate *outriggerv1.RolloutGate) time.Duration {
	if gate.Webhook != nil && gate.Webhook.Timeout != nil {
		return gate.Webhook.Timeout.Duration
	}
	return defaultTimeout
}

// Credentials returns the address to which a gate sends a Secret, and the name of the Secret, or empty strings
// for a gate without credentials.
func Credentials(gate *outriggerv1.RolloutGate) (address, secret string) {
	switch {
	case gate.Prometheus != nil && gate.Prometheus.Credentials != nil:
		return gate.Prometheus.Address, gate.Prometheus.Credentials.Name
	case gate.Webhook != nil && gate.Webhook.Credentials != nil:
		return gate.Webhook.URL, gate.Webhook.Credentials.Name
	}
	return "", ""
}

// Sends reports whether a policy has a gate with this name that sends this Secret to this address.
func Sends(policy *outriggerv1.RolloutPolicySpec, name, address, secret string) bool {
	return slices.ContainsFunc(policy.Gates, func(gate outriggerv1.RolloutGate) bool {
		named, sent := Credentials(&gate)
		return gate.Name == name && named == address && sent == secret
	})
}

// Wait returns the time until the next measurement of a gate.
func Wait(gate *outriggerv1.RolloutGate, state protocol.GateState, now time.Time) time.Duration {
	if len(state.Measurements) == 0 {
		return 0
	}
	return max(state.Measurements[len(state.Measurements)-1].Time.Add(Interval(gate)).Sub(now), 0)
}

// Previous returns the value of the last measurement that has a value, or "" if no measurement has a value.
func Previous(state protocol.GateState) string {
	for _, m := range slices.Backward(state.Measurements) {
		if m.Value != "" {
			return m.Value
		}
	}
	return ""
}

// Format returns the shortest text from which parse reads the same number.
func Format(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

// parse reads a number that Format has written. For other text, such as the empty text before the first
// value, parse returns NaN.
func parse(value string) float64 {
	number, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return math.NaN()
	}
	return number
}

// Record returns the state of a gate after a measurement. Record does not change state.
func Record(gate *outriggerv1.RolloutGate, state protocol.GateState, measured protocol.Measurement) protocol.GateState {
	kept := state.Measurements[max(len(state.Measurements)-protocol.MaxMeasurements+1, 0):]
	state.Measurements = append(slices.Clone(kept), measured)
	switch measured.Phase {
	case protocol.GateRunning:
		state.Phase, state.Message = protocol.GateRunning, measured.Message
		return state
	case protocol.GateFailure:
		state.Failed++
	case protocol.GateSuccess:
	default:
		state.Inconclusive++
	}
	state.Samples++
	if gate.Prometheus == nil {
		state.Phase, state.Message = measured.Phase, measured.Message
		return state
	}
	state.Phase = verdict(gate.Prometheus, state)
	state.Message = message(gate.Prometheus, state, measured)
	return state
}

// verdict returns the phase of a gate from its samples. A gate fails as soon as more than failureLimit samples
// have failed. Otherwise, the gate runs until the last sample.
func verdict(gate *outriggerv1.PrometheusGate, state protocol.GateState) protocol.GatePhase {
	switch {
	case state.Failed > int(gate.FailureLimit):
		return protocol.GateFailure
	case state.Samples < samples(gate):
		return protocol.GateRunning
	case state.Inconclusive > 0, state.Failed == state.Samples:
		return protocol.GateInconclusive
	}
	return protocol.GateSuccess
}

func samples(gate *outriggerv1.PrometheusGate) int { return max(int(gate.Samples), 1) }

func message(gate *outriggerv1.PrometheusGate, state protocol.GateState, last protocol.Measurement) string {
	text := fmt.Sprintf("%d of %d samples", state.Samples, samples(gate))
	if state.Failed > 0 {
		text += fmt.Sprintf(", %d failed", state.Failed)
	}
	if state.Inconclusive > 0 {
		text += fmt.Sprintf(", %d inconclusive", state.Inconclusive)
	}
	if last.Value != "" {
		text += ", last value " + last.Value
	}
	if last.Message != "" {
		text += " (" + last.Message + ")"
	}
	return text
}

// Reason describes a gate that failed or is inconclusive. title is the title of the step or stage of the
// gate.
func Reason(title string, state protocol.GateState) string {
	verb := "failed"
	if state.Phase == protocol.GateInconclusive {
		verb = "is inconclusive"
	}
	reason := fmt.Sprintf("gate %s of %s %s", state.Name, title, verb)
	if state.Message != "" {
		reason += ": " + state.Message
	}
	return reason
}
