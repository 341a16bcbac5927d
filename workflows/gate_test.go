package workflows

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/gate"
)

// gated adds the gate errors to the first step of the policy. The values are the responses of Prometheus, one for
// each measurement. A negative value stands for a measurement that never ends.
func (s *stageSuite) gated(values ...float64) {
	s.measured, s.measuredAt = nil, nil
	s.policies[0].Spec.Gates = []outriggerv1.RolloutGate{{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{Samples: 2, Success: "value < 1.0", Failure: "value > 2.0"}}}
	s.policies[0].Spec.Steps = []outriggerv1.RolloutStep{{Name: "canary", UpTo: intstr.FromInt32(1), Bake: &metav1.Duration{Duration: 10 * time.Minute}, Gates: []string{"errors"}}}
	s.env.RegisterActivityWithOptions(func(_ context.Context, input protocol.MeasureGateInput) (protocol.Measurement, error) {
		if wait := input.NotBefore.Sub(s.env.Now()); wait > 0 {
			return protocol.Measurement{}, temporal.NewApplicationErrorWithOptions("not due", protocol.GateNotDue, temporal.ApplicationErrorOptions{NextRetryDelay: wait})
		}
		s.measured, s.measuredAt = append(s.measured, input), append(s.measuredAt, s.env.Now().Sub(s.begin))
		s.Require().NotEmpty(values, "the gate measured more than it should")
		value := values[0]
		values = values[1:]
		if value < 0 {
			return protocol.Measurement{}, activity.ErrResultPending
		}
		return gate.Judge(input.Gate.Prometheus, value, input.Previous, input.Pods), nil
	}, activity.RegisterOptions{Name: protocol.MeasureGateActivity})
}

func (s *stageSuite) at(after time.Duration, do func()) { s.env.RegisterDelayedCallback(do, after) }

func (s *stageSuite) resumeAt(after time.Duration) {
	s.at(after, func() { s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "ann"}) })
}

func (s *stageSuite) TestSpec11_14_AGateMeasuresAfterTheBakeTimeAndBeforeTheApproval() {
	s.gated(0.1, 0.2)
	s.policies[0].Spec.Steps[0].Approval = &outriggerv1.StepApproval{}
	s.at(10*time.Minute+30*time.Second, func() {
		status := s.query()
		s.Equal(protocol.PhaseGateRunning, status.Phase)
		s.Equal("step 1 of 1 (canary) waits for gate errors: 1 of 2 samples, last value 0.1", status.Message)
	})
	s.at(time.Hour, func() { s.Equal(protocol.PhaseAwaitingApproval, s.query().Phase) })
	s.request(2*time.Hour, protocol.ApproveUpdate, approval(0), "step 1 of 1 (canary) is approved")
	s.complete(input(1))
	s.Require().Len(s.measured, 2)
	s.GreaterOrEqual(s.measuredAt[0], 10*time.Minute)
	s.GreaterOrEqual(s.measuredAt[1]-s.measuredAt[0], time.Minute)
	s.Less(s.measuredAt[1], 12*time.Minute)
	s.Equal("0.1", s.measured[1].Previous)
	s.Equal("canary", s.measured[0].Step)
	s.Equal(1, s.measured[0].Pods)
	s.GreaterOrEqual(s.upgradedAt[1], 2*time.Hour)
}

func (s *stageSuite) TestSpec11_14_AnInconclusiveGatePausesUntilItMeasuresAgain() {
	s.gated(1.5, 0.1, 0.1, 0.1)
	s.policies[0].Spec.Steps[0].Approval = &outriggerv1.StepApproval{}
	s.request(time.Hour, protocol.ApproveUpdate, approval(0), "is approved")
	s.at(2*time.Hour, func() {
		status := s.query()
		s.Equal(protocol.PhasePaused, status.Phase)
		s.Equal("paused by RolloutPolicy edge: gate errors of step 1 of 1 (canary) is inconclusive: 2 of 2 samples, 1 inconclusive, last value 0.1", status.Message)
		s.Len(s.upgradedAt, 1, "an approval does not skip the gate")
	})
	s.resumeAt(3 * time.Hour)
	s.complete(input(1))
	s.Len(s.measured, 4)
	s.Empty(s.measured[2].Previous, "the gate measures again from the beginning")
	s.GreaterOrEqual(s.upgradedAt[1], 3*time.Hour)
}

func (s *stageSuite) TestSpec11_14_APromotionSkipsAnInconclusiveGate() {
	s.gated(1.5, 1.5)
	s.request(time.Hour, protocol.PromoteUpdate, approval(0), "step 1 of 1 (canary) ended")
	s.complete(input(1))
	s.GreaterOrEqual(s.upgradedAt[1], time.Hour)
	s.Less(s.upgradedAt[1], time.Hour+time.Minute)
}

// The measurement does not end by itself. A promotion ends the measurement immediately.
func (s *stageSuite) TestSpec11_14_APromotionEndsAMeasurement() {
	s.gated(-1, -1)
	s.request(12*time.Minute, protocol.PromoteUpdate, approval(0), "step 1 of 1 (canary) ended")
	s.complete(input(1))
	s.GreaterOrEqual(s.upgradedAt[1], 12*time.Minute)
	s.Less(s.upgradedAt[1], 12*time.Minute+10*time.Second)
}

func (s *stageSuite) TestSpec11_14_APauseEndsAMeasurementAndTheResumeRepeatsIt() {
	s.gated(-1, 0.1, 0.1)
	s.at(12*time.Minute, func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann"}) })
	s.at(12*time.Minute+10*time.Second, func() { s.Equal(protocol.PhasePaused, s.query().Phase) })
	s.resumeAt(20 * time.Minute)
	s.complete(input(1))
	s.Len(s.measured, 3)
	s.Empty(s.measured[1].Previous, "the measurement that ended has no result")
}

func (s *stageSuite) TestSpec11_14_AnAbortEndsAMeasurement() {
	s.gated(-1)
	s.script = s.script[:2]
	s.answers(protocol.NextBatchResult{
		Phase: protocol.PhaseWaiting, Failure: &protocol.Failure{Reason: "aborted", Quarantine: &protocol.Quarantine{Hash: "bad", Revision: "logs-1", Reason: "aborted"}},
		Stage: &protocol.Stage{Generation: 1, Policy: "edge", Aborted: &protocol.Approval{}},
	}, ends(protocol.PhaseDeleted))
	s.script = append([]func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error){s.next, s.next}, s.script...)
	s.request(12*time.Minute, protocol.AbortUpdate, approval(0), "generation 1 is aborted")
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, input(1))
	s.Require().NoError(s.env.GetWorkflowError())
	last := s.asked[len(s.asked)-1].Stage
	s.Require().NotNil(last.Quarantine)
	s.Empty(last.Gates)
}

func (s *stageSuite) TestSpec11_14_ANewGenerationEndsAMeasurement() {
	s.gated(-1)
	s.at(12*time.Minute, func() { s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2}) })
	next := s.continued()
	s.Equal(int64(2), next.Generation)
	s.Nil(next.Progress.Stage)
}

// An unavailable provider neither passes nor fails the gate, so the measurement is retried.
func (s *stageSuite) TestSpec11_14_AnUnavailableProviderIsAskedAgain() {
	s.gated()
	s.policies[0].Spec.Gates[0].Prometheus.Samples = 1
	attempts := 0
	s.env.OnActivity(protocol.MeasureGateActivity, mock.Anything, mock.Anything).Return(func(_ context.Context, input protocol.MeasureGateInput) (protocol.Measurement, error) {
		attempts++
		if attempts < 5 {
			return protocol.Measurement{}, errors.New("connection refused")
		}
		return gate.Judge(input.Gate.Prometheus, 0.1, input.Previous, input.Pods), nil
	})
	s.complete(input(1))
	s.Equal(5, attempts)
	s.GreaterOrEqual(s.upgradedAt[1], 10*time.Minute+15*time.Second, "the backoff is 1, 2, 4 and 8 seconds")
}

// If an activity times out during an attempt, the server sets the retry state of an error that is not
// retried. The test environment sets another retry state.
func (s *stageSuite) TestSpec11_14_ARequestThatHangsDecidesNothing() {
	hangs := func(cause *failure.Failure) error {
		return temporal.GetDefaultFailureConverter().FailureToError(&failure.Failure{Message: "activity error", Cause: cause, FailureInfo: &failure.Failure_ActivityFailureInfo{
			ActivityFailureInfo: &failure.ActivityFailureInfo{RetryState: enums.RETRY_STATE_NON_RETRYABLE_FAILURE},
		}})
	}
	s.True(isUnavailable(hangs(&failure.Failure{FailureInfo: &failure.Failure_TimeoutFailureInfo{
		TimeoutFailureInfo: &failure.TimeoutFailureInfo{TimeoutType: enums.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE},
	}})))
	s.False(isUnavailable(hangs(&failure.Failure{Message: "no such gate", FailureInfo: &failure.Failure_ApplicationFailureInfo{
		ApplicationFailureInfo: &failure.ApplicationFailureInfo{NonRetryable: true},
	}})))
}

// plansUntilProvider completes the rollout with a gate of one sample, whose provider is unavailable for
// twenty minutes. plansUntilProvider returns the number of plans in the twenty minutes.
func (s *stageSuite) plansUntilProvider() (plans int) {
	s.policies[0].Spec.Gates[0].Prometheus.Samples = 1
	s.env.OnActivity(protocol.MeasureGateActivity, mock.Anything, mock.Anything).Return(func(_ context.Context, input protocol.MeasureGateInput) (protocol.Measurement, error) {
		if s.env.Now().Sub(s.begin) < 20*time.Minute {
			plans = len(s.asked)
			return protocol.Measurement{}, errors.New("connection refused")
		}
		return gate.Judge(input.Gate.Prometheus, 0.1, input.Previous, input.Pods), nil
	})
	s.complete(input(1))
	return plans
}

// The run requests plans during an outage of the provider, because pods may fail meanwhile.
func (s *stageSuite) TestSpec11_14_TheRunPlansDuringAnOutageOfTheProvider() {
	s.gated()
	plans := s.plansUntilProvider()
	s.GreaterOrEqual(plans, 4, "one plan in five minutes, after the plan of the step and of its bake time")
}

func (s *stageSuite) TestSpec11_6_TheRunPlansEachMinuteWhileAPodMayFailDuringAnOutageOfTheProvider() {
	s.gated()
	plan := s.next
	for i := range s.script {
		s.script[i] = func(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
			result, err := plan(ctx, input)
			result.Again = time.Minute
			return result, err
		}
	}
	plans := s.plansUntilProvider()
	s.GreaterOrEqual(plans, 15, "one plan each minute, also after the bake time of ten minutes")
}

// The next plan decides whether a failed gate rolls the rollout back or pauses the rollout.
func (s *stageSuite) TestSpec11_14_AFailedGateIsInTheNextPlan() {
	s.gated(3, 0.1, 0.1)
	plan := s.next
	failing := func(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		result, err := plan(ctx, input)
		if state := input.Stage.EndedGate(protocol.GateFailure); state != nil && !input.Paused {
			result.Failure = &protocol.Failure{Reason: gate.Reason(input.Stage.Title(), *state)}
		}
		return result, err
	}
	for i := range s.script {
		s.script[i] = failing
	}
	s.at(time.Hour, func() {
		s.Equal("paused by RolloutPolicy edge: gate errors of step 1 of 1 (canary) failed: 1 of 2 samples, 1 failed, last value 3", s.query().Message)
	})
	s.resumeAt(2 * time.Hour)
	s.complete(input(1))
	s.Len(s.measured, 3)
}

func (s *stageSuite) TestSpec11_14_AResumeKeepsAFailureThatDidNotPauseTheRun() {
	for name, c := range map[string]struct {
		phase    protocol.GatePhase
		byPolicy bool
		failed   *int
		kept     bool
	}{
		"a failure before a pause by a user":                   {protocol.GateFailure, false, nil, true},
		"a failure that paused the run":                        {protocol.GateFailure, true, nil, false},
		"a failure that paused the run before a user did, too": {protocol.GateFailure, false, new(0), false},
		"no clear answer":                                      {protocol.GateInconclusive, false, nil, false},
	} {
		stage := &protocol.Stage{Step: &protocol.Step{}, Failed: c.failed, Gates: []protocol.GateState{{Name: "errors", Phase: c.phase}}}
		measureAgain(stage, c.byPolicy)
		s.Equal(c.kept, len(stage.Gates) > 0, name)
	}
}
