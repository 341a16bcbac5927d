package workflows

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/api/enums/v1"
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

// awaitGate takes samples of the open gate (SPEC §11.14). awaitGate returns when a signal arrives, and after
// about checkInterval, because the limit of failed pods also applies during a measurement. A measurement without
// a result is not recorded, and a later call of awaitGate repeats the measurement.
func (r *run) awaitGate(ctx workflow.Context) error {
	began := workflow.Now(ctx)
	for measured := false; ; measured = true {
		s := r.progress.Stage
		open := s.OpenGate()
		state := s.StateOf(open.Name)
		switch state.Phase {
		case protocol.GateInconclusive, protocol.GateFailure:
			return r.pause(ctx, protocol.PauseByPolicy(s.Policy, gate.Reason(s.Title(), state)))
		}
		now := workflow.Now(ctx)
		phase, message := s.Wait(now)
		if err := r.show(ctx, phase, message); err != nil {
			return err
		}
		wait, left := gate.Wait(open, state, now), r.untilFailure(checkInterval)-now.Sub(began)
		switch {
		case !measured && wait > left:
			return r.awaitSignalFor(ctx, left, message)
		case measured && wait >= left:
			return nil
		}
		counted, err := r.measure(ctx, open, state, wait, left)
		if err != nil || !counted || r.hasSignals() || r.progress.Stage.StateOf(open.Name).Phase != protocol.GateRunning {
			return err
		}
	}
}

// measure takes one sample after a wait, and reports whether the sample has a result. The wait is part of the
// activity, because a separate timer would double the number of events of each sample. left is the time until the
// run plans again.
func (r *run) measure(ctx workflow.Context, open *outriggerv1.RolloutGate, state protocol.GateState, wait, left time.Duration) (counted bool, err error) {
	s, input := r.progress.Stage, r.gateInput(open, state)
	if wait > 0 {
		input.NotBefore = workflow.Now(ctx).Add(wait)
	}
	measuring, cancel := workflow.WithCancel(gateOptions(ctx, open, state, wait, left))
	defer cancel()
	answer := workflow.ExecuteActivity(measuring, protocol.MeasureGateActivity, input)
	if err := workflow.Await(ctx, func() bool { return answer.IsReady() || r.hasSignals() }); err != nil || !answer.IsReady() || r.progress.Stage != s {
		return false, err
	}
	var measured protocol.Measurement
	if err := answer.Get(ctx, &measured); err != nil {
		if isUnavailable(err) {
			return false, nil
		}
		return false, fmt.Errorf("measure gate %s of generation %d: %w", open.Name, r.input.Generation, err)
	}
	measured.Time = workflow.Now(ctx)
	return true, r.recordMeasurement(ctx, open, state, measured)
}

// isUnavailable reports whether a measurement failed because the provider or the workers were unavailable. If
// an activity times out during an attempt, the retry state of the error is the same as for an error that is
// not retried. isUnavailable therefore looks for a TimeoutError first.
func isUnavailable(err error) bool {
	if _, late := errors.AsType[*temporal.TimeoutError](err); late {
		return true
	}
	failed, ok := errors.AsType[*temporal.ActivityError](err)
	return ok && failed.RetryState() != enums.RETRY_STATE_NON_RETRYABLE_FAILURE
}

// recordMeasurement adds a measurement to the stage. After a failure of the gate, the next plan rolls the
// rollout back or pauses the rollout, as after failed pods.
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

// measureAgain removes the measurements of a step with an inconclusive gate, or with a failed gate that paused
// the run. All gates of the step then restart. A failure that has not paused the run is kept, because the next
// plan must still stop the rollout. Failed is also checked, because the pause of a user may have replaced the
// pause by the policy.
func measureAgain(s *protocol.Stage, pausedByPolicy bool) {
	if s.EndedGate(protocol.GateInconclusive) != nil || (pausedByPolicy || s.Failed != nil) && s.EndedGate(protocol.GateFailure) != nil {
		s.Gates, s.GateAttempt = nil, s.GateAttempt+1
	}
}

// pausedByGate reports whether the policy paused the run and a gate of the step is inconclusive or has
// failed.
func (r *run) pausedByGate() bool {
	s := r.progress.Stage
	return r.paused != nil && r.paused.ByPolicy() && (s.EndedGate(protocol.GateInconclusive) != nil || s.EndedGate(protocol.GateFailure) != nil)
}

// gateOptions returns the options of a measurement. A measurement may take the time left until the run plans
// again, and at least the time of one request after the wait. The run therefore also makes plans, which count
// failed pods, during an outage of the provider.
func gateOptions(ctx workflow.Context, open *outriggerv1.RolloutGate, state protocol.GateState, wait, left time.Duration) workflow.Context {
	attempt := gate.Timeout(open) + gateMargin
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: max(left, wait+attempt),
		StartToCloseTimeout:    attempt,
		HeartbeatTimeout:       protocol.HeartbeatTimeout,
		Summary:                fmt.Sprintf("measure gate %s, sample %d", open.Name, state.Samples+1),
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: gateRetryInterval},
	})
}
