package workflows

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

const deadline = 30 * time.Minute

// stuck returns a plan that waits for an upgraded pod. If the run reports an overdue deadline, the plan fails
// the rollout, and sets failed to the time since the start.
func (s *stageSuite) stuck(failed *time.Duration) planFunc {
	return func(_ context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		result := protocol.NextBatchResult{Phase: protocol.PhaseWaiting, ProgressDue: true, Stage: input.Stage, Counts: protocol.Counts{UpdatedReady: s.ready}}
		if input.Overdue != nil && input.Overdue.Ready >= s.ready {
			*failed = s.env.Now().Sub(s.begin)
			result.Failure = &protocol.Failure{Reason: "too late", Overdue: true}
		}
		return result, nil
	}
}

// withDeadline returns the input of a run in a step with a progress deadline. All plans of the run are stuck.
func (s *stageSuite) withDeadline(failed *time.Duration) protocol.RolloutInput {
	from := input(1)
	from.Progress.Stage = &protocol.Stage{Generation: 1, Policy: "edge", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("100%"), ProgressDeadline: deadline}}
	s.script, s.ready = nil, 0
	for range 100 {
		s.script = append(s.script, s.stuck(failed))
	}
	return from
}

// endAt makes the plans end the rollout after the given time, and resumes the run at this time.
func (s *stageSuite) endAt(after time.Duration) {
	s.env.RegisterDelayedCallback(func() {
		s.script = nil
		s.answers(ends(protocol.PhaseComplete), ends(protocol.PhaseComplete))
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	}, after)
}

func (s *stageSuite) ends(from protocol.RolloutInput) {
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, from)
	s.Require().True(s.env.IsWorkflowCompleted())
	s.Require().NoError(s.env.GetWorkflowError())
}

func (s *stageSuite) TestSpec11_6_ARunWithoutProgressIsPausedAtItsDeadline() {
	var failed time.Duration
	from := s.withDeadline(&failed)
	s.env.RegisterDelayedCallback(func() {
		s.Equal(&protocol.Pause{By: "RolloutPolicy edge", Reason: "too late"}, untimed(s.query().Pause))
		s.InDelta(deadline, failed, float64(time.Minute))
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	}, 2*time.Hour)
	s.env.RegisterDelayedCallback(func() {
		s.InDelta(2*time.Hour+deadline, failed, float64(time.Minute), "the deadline starts again with the resume")
	}, 3*time.Hour)
	s.endAt(4 * time.Hour)
	s.ends(from)
}

func (s *stageSuite) TestSpec11_6_APodThatBecomesReadyStartsTheDeadlineAgain() {
	var failed time.Duration
	from := s.withDeadline(&failed)
	for i := range 3 {
		s.env.RegisterDelayedCallback(func() { s.ready++ }, 20*time.Minute*time.Duration(i+1))
	}
	s.endAt(3 * time.Hour)
	s.ends(from)
	s.GreaterOrEqual(failed, time.Hour+deadline)
	s.Less(failed, time.Hour+deadline+2*checkInterval)
}

func (s *stageSuite) TestSpec11_6_TheDeadlineStopsDuringAFreezeAndAPause() {
	for name, begin := range map[string]func(){
		"a freeze": func() {
			plan := s.script[0]
			for i := range s.script {
				s.script[i] = func(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
					result, err := plan(ctx, input)
					if now := s.env.Now().Sub(s.begin); now > 20*time.Minute && now < time.Hour {
						result.Phase, result.ProgressDue = protocol.PhaseFrozen, false
					}
					return result, err
				}
			}
		},
		"a pause": func() {
			s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{}) }, 20*time.Minute)
			s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{}) }, time.Hour)
		},
	} {
		s.Run(name, func() {
			s.SetupTest()
			var failed time.Duration
			from := s.withDeadline(&failed)
			begin()
			s.endAt(3 * time.Hour)
			s.ends(from)
			s.GreaterOrEqual(failed, time.Hour+deadline)
			s.Less(failed, time.Hour+deadline+2*checkInterval)
		})
	}
}

// The worker was down for an hour, so the result of the activity is an hour late.
func (s *stageSuite) TestSpec11_6_TheDeadlineStartsAgainAfterAnOutage() {
	var failed time.Duration
	from := s.withDeadline(&failed)
	s.script[2] = func(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		token := activity.GetInfo(ctx).TaskToken
		s.env.RegisterDelayedCallback(func() {
			result, err := s.stuck(&failed)(ctx, input)
			result.Failure = &protocol.Failure{Reason: "too late", Overdue: true}
			s.NoError(err)
			s.NoError(s.env.CompleteActivity(token, result, nil))
		}, time.Hour)
		return protocol.NextBatchResult{}, activity.ErrResultPending
	}
	s.endAt(3 * time.Hour)
	s.ends(from)
	s.GreaterOrEqual(failed, time.Hour+deadline)
	s.Less(failed, time.Hour+deadline+3*checkInterval)
}

func (s *stageSuite) TestSpec11_6_AContinueAsNewKeepsTheDeadline() {
	var failed time.Duration
	from := s.withDeadline(&failed)
	s.env.RegisterDelayedCallback(func() {
		s.env.SetCurrentHistoryLength(longHistory)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	}, 20*time.Minute)
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, from)
	next := continuedAs(s.T(), s.env.GetWorkflowError())
	s.Require().NotNil(next.Progress.Stall)
	s.Less(next.Progress.Stall.Since.Sub(s.begin), time.Minute)
}

func (s *stageSuite) TestSpec11_6_ARunWithoutADeadlineKeepsNoStall() {
	s.policies = []outriggerv1.RolloutPolicy{s.policies[0]}
	s.request(time.Hour, protocol.ApproveUpdate, approval(1), "step 2 of 3 is approved")
	s.complete(input(1))
	for _, asked := range s.asked {
		s.Nil(asked.Overdue)
	}
}

// A pod that a plan observes as unready may become a failed pod later, so the run must plan again at that time.
func (s *stageSuite) TestSpec11_6_ARunPlansAgainOnceAPodMayHaveFailed() {
	for name, phase := range map[string]protocol.Phase{"waiting": protocol.PhaseWaiting, "during a bake time": protocol.PhaseStepReached} {
		s.Run(name, func() {
			s.SetupTest()
			var failed time.Duration
			from := s.withDeadline(&failed)
			from.Progress.Stage.Step.Bake = time.Hour
			s.script = nil
			s.answers(protocol.NextBatchResult{Phase: phase, Stage: from.Progress.Stage, Again: 40 * time.Second},
				protocol.NextBatchResult{Phase: phase, Stage: from.Progress.Stage})
			s.script = append(s.script, func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) {
				failed = s.env.Now().Sub(s.begin)
				return ends(protocol.PhaseComplete), nil
			})
			s.ends(from)
			s.GreaterOrEqual(failed, 40*time.Second+checkInterval)
			s.Less(failed, 50*time.Second+checkInterval)
		})
	}
}
