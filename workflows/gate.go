package workflows

import (
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/gate"
)

const (
	// gateRetryInterval is the longest backoff while the provider of a gate is unavailable.
	gateRetryInterval = 30 * time.Second
	// gateMargin is the time that a measurement has in addition to the timeout of its request.
	gateMargin = 20 * time.Second
)

// awaitGate takes the next measurement of the gate that is open (SPEC §11.14). It ends early when a
// signal arrives, and after checkInterval, because failed pods count during a measurement, too. The
// measurement is then repeated, so it never has two results.
func (r *run) awaitGate(ctx workflow.Context, message string) error {
	s := r.progress.Stage
	open := s.OpenGate()
	state := s.StateOf(open.Name)
	switch state.Phase {
	case protocol.GateInconclusive, protocol.GateFailure:
		return r.pause(ctx, protocol.PauseByPolicy(s.Policy, gate.Reason(s, state)))
	}
	if wait := gate.Wait(open, state, workflow.Now(ctx)); wait > 0 {
		return r.awaitSignalFor(ctx, min(wait, r.untilFailure(checkInterval)), message)
	}
	measuring, cancel := workflow.WithCancel(gateOptions(ctx, open, state))
	defer cancel()
	answer := workflow.ExecuteActivity(measuring, protocol.MeasureGateActivity, r.gateInput(open, state))
	answered, err := workflow.AwaitWithOptions(ctx, waitOptions(checkInterval, message), func() bool { return answer.IsReady() || r.hasSignals() })
	if err != nil || !answered || !answer.IsReady() || r.progress.Stage != s {
		return err
	}
	var measured protocol.Measurement
	if err := answer.Get(ctx, &measured); err != nil {
		return fmt.Errorf("measure gate %s of generation %d: %w", open.Name, r.input.Generation, err)
	}
	measured.Time = workflow.Now(ctx)
	return r.recordMeasurement(ctx, open, state, measured)
}

// recordMeasurement adds a measurement to the stage. After a failure, the next plan rolls the rollout
// back, or pauses it, as after failed pods.
func (r *run) recordMeasurement(ctx workflow.Context, open *outriggerv1.RolloutGate, state protocol.GateState, measured protocol.Measurement) error {
	state = gate.Record(open, state, measured)
	r.progress.Stage = r.progress.Stage.WithGate(state)
	r.log(ctx).Info("gate measured", "gate", state.Name, "phase", string(state.Phase), "value", measured.Value, "message", state.Message)
	return r.recordStage(ctx)
}

func (r *run) gateInput(open *outriggerv1.RolloutGate, state protocol.GateState) protocol.MeasureGateInput {
	s := r.progress.Stage
	step := s.Step.Name
	if step == "" {
		step = strconv.Itoa(s.Index + 1)
	}
	return protocol.MeasureGateInput{
		SidecarSet: r.input.SidecarSet, Generation: r.input.Generation, Policy: s.Policy, Step: step,
		Gate: *open, Previous: gate.Previous(state), Pods: r.counts.Updated, Reached: *s.Reached, Attempt: s.GateAttempt,
	}
}

// measureAgain removes the measurements of a step whose gate has no clear answer, or whose failed gate
// paused the run. Its gates measure again from the beginning. A failure without a pause of the policy is
// kept, because the next plan still has to act upon it.
func measureAgain(s *protocol.Stage, pausedByPolicy bool) {
	if s.EndedGate(protocol.GateInconclusive) != nil || pausedByPolicy && s.EndedGate(protocol.GateFailure) != nil {
		s.Gates, s.GateAttempt = nil, s.GateAttempt+1
	}
}

// pausedByGate reports whether a gate without a clear answer, or a failed gate, paused the run.
func (r *run) pausedByGate() bool {
	s := r.progress.Stage
	return r.paused != nil && r.paused.ByPolicy() && (s.EndedGate(protocol.GateInconclusive) != nil || s.EndedGate(protocol.GateFailure) != nil)
}

func gateOptions(ctx workflow.Context, open *outriggerv1.RolloutGate, state protocol.GateState) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: gate.Timeout(open) + gateMargin,
		HeartbeatTimeout:    protocol.HeartbeatTimeout,
		Summary:             fmt.Sprintf("measure gate %s, sample %d", open.Name, state.Samples+1),
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: gateRetryInterval},
	})
}
