package workflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/suite"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

func TestStages(t *testing.T) { suite.Run(t, &stageSuite{}) }

// stageSuite simulates a cluster with 100 pods and a RolloutPolicy. Each pod is ready immediately after the
// upgrade.
type stageSuite struct {
	simulation
	policies []outriggerv1.RolloutPolicy
	// upgradedAt contains the time of each upgrade, relative to the start of the run.
	upgradedAt []time.Duration
	begin      time.Time
	plans      int
	// failed is the number of pods that have failed.
	failed int
	// ready is the number of updated pods that are ready in stuck plans.
	ready int
	// measured contains the inputs of the measurements of gates. measuredAt contains the times of the
	// measurements since the start of the run.
	measured   []protocol.MeasureGateInput
	measuredAt []time.Duration
}

const pods = 100

func (s *stageSuite) SetupTest() {
	s.simulation.SetupTest()
	s.upgradedAt, s.plans, s.failed, s.begin = nil, 0, 0, s.env.Now()
	policy := outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}
	policy.Spec.Steps = []outriggerv1.RolloutStep{
		{Name: "canary", UpTo: intstr.FromInt32(1), Bake: &metav1.Duration{Duration: 10 * time.Minute}},
		{UpTo: intstr.FromString("25%"), Approval: &outriggerv1.StepApproval{}},
		{UpTo: intstr.FromString("50%")},
	}
	s.policies = []outriggerv1.RolloutPolicy{policy}
	s.plan(1000)
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		s.NotNil(input.Stage)
		for range input.Pods {
			s.upgradedAt = append(s.upgradedAt, s.env.Now().Sub(s.begin))
		}
		return written(input.Pods), nil
	}
}

// plan sets a script of n plans, so that the run can make at most n plans.
func (s *stageSuite) plan(n int) {
	s.script = nil
	for range n {
		s.script = append(s.script, s.next)
	}
}

// next returns the plan that the activity NextBatch would return without a limit of unavailable pods.
func (s *stageSuite) next(_ context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
	s.plans++
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "logs", Generation: input.Generation}}
	current, err := stage.Resolve(set, input.Stage, s.policies)
	s.Require().NoError(err)
	if current != nil && current.Accept {
		accepted := *current
		accepted.Accept, accepted.Tolerated = false, s.failed
		current = &accepted
	}
	updated := len(s.upgradedAt)
	result := protocol.NextBatchResult{Stage: current, Counts: protocol.Counts{Matched: pods, Updated: updated, Remaining: pods - updated}}
	allowed, err := stage.Allowed(current, updated, pods-updated)
	s.Require().NoError(err)
	switch {
	case updated == pods:
		result.Phase = protocol.PhaseComplete
	case allowed == 0:
		result.Phase = protocol.PhaseStepReached
	default:
		var names []string
		for i := range allowed {
			names = append(names, fmt.Sprint("p", updated+i))
		}
		result.Phase, result.Pods = protocol.PhaseProgressing, batch(names...).Pods
	}
	return result, nil
}

func (s *stageSuite) complete(from protocol.RolloutInput) {
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, from)
	s.Require().True(s.env.IsWorkflowCompleted())
	s.Require().NoError(s.env.GetWorkflowError())
	s.Len(s.upgradedAt, pods)
}

// request sends the update name, and expects a message, an error or a rejection that contains text.
func (s *stageSuite) request(after time.Duration, name string, request protocol.StepRequest, text string) {
	s.env.RegisterDelayedCallback(func() {
		s.env.UpdateWorkflow(name, fmt.Sprint(name, after, request.Generation), &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { s.ErrorContains(err, text) },
			OnComplete: func(result any, err error) {
				if err == nil {
					err = errors.New(result.(protocol.StepResult).Message)
				}
				s.ErrorContains(err, text)
			},
		}, request)
	}, after)
}

func approval(step int) protocol.StepRequest {
	return protocol.StepRequest{Approval: protocol.Approval{By: "ann", Reason: "looks good"}, Generation: 1, Step: step}
}

func (s *stageSuite) TestSpec11_3_AStepBakesAndWaitsForItsApproval() {
	s.env.RegisterDelayedCallback(func() {
		status := s.query()
		s.Equal(protocol.PhaseBaking, status.Phase)
		s.Contains(status.Message, "step 1 of 3 (canary) bakes until ")
		s.Equal(1, status.Upgraded)
	}, 9*time.Minute)
	s.env.RegisterDelayedCallback(func() {
		status := s.query()
		s.Equal(protocol.PhaseAwaitingApproval, status.Phase)
		s.Equal("step 2 of 3 waits for approval", status.Message)
		s.Equal(25, status.Upgraded)
	}, 3*time.Hour)
	s.request(time.Minute, protocol.ApproveUpdate, approval(0), "step 1 of 3 (canary) needs no approval")
	s.request(2*time.Minute, protocol.ApproveUpdate, approval(1), "the current step is step 1 of 3 (canary)")
	s.request(4*time.Hour, protocol.ApproveUpdate, approval(1), "step 2 of 3 is approved")
	s.request(4*time.Hour, protocol.ApproveUpdate, protocol.StepRequest{Generation: 2, Step: 1}, "the run has generation 1")
	s.request(4*time.Hour+time.Second, protocol.ApproveUpdate, approval(1), "the current step is step 4 of 3")
	s.complete(input(1))
	s.Less(s.upgradedAt[0], time.Minute)
	s.GreaterOrEqual(s.upgradedAt[1], 10*time.Minute, "the canary bakes for ten minutes")
	s.Less(s.upgradedAt[1], 11*time.Minute)
	s.Equal(s.upgradedAt[1], s.upgradedAt[24])
	s.GreaterOrEqual(s.upgradedAt[25], 4*time.Hour, "the next step waits for the approval")
	s.Less(s.upgradedAt[99], 5*time.Hour, "a step without bake time and approval does not wait")
}

func (s *stageSuite) TestSpec11_3_AnApprovalDuringTheBakeTimeCountsOnce() {
	s.policies[0].Spec.Steps = []outriggerv1.RolloutStep{
		{UpTo: intstr.FromInt32(1), Bake: &metav1.Duration{Duration: time.Hour}, Approval: &outriggerv1.StepApproval{}},
		{UpTo: intstr.FromInt32(2), Approval: &outriggerv1.StepApproval{}},
	}
	s.request(time.Minute, protocol.ApproveUpdate, approval(0), "step 1 of 2 is approved")
	s.request(2*time.Minute, protocol.ApproveUpdate, approval(0), "step 1 of 2 is approved already from ann: looks good")
	s.request(3*time.Hour, protocol.ApproveUpdate, approval(1), "step 2 of 2 is approved")
	s.complete(input(1))
	s.GreaterOrEqual(s.upgradedAt[1], time.Hour)
	s.Less(s.upgradedAt[1], time.Hour+time.Minute)
	s.GreaterOrEqual(s.upgradedAt[2], 3*time.Hour, "the second approval of step 1 does not approve step 2")
}

func (s *stageSuite) TestSpec11_3_PromoteEndsAStepAndFullEndsAllSteps() {
	s.request(time.Minute, protocol.PromoteUpdate, approval(0), "step 1 of 3 (canary) ended; the next step begins")
	s.request(time.Minute+time.Second, protocol.PromoteUpdate, approval(0), "the current step is step 2 of 3")
	full := approval(1)
	full.Full = true
	s.request(2*time.Minute, protocol.PromoteUpdate, full, "all steps ended")
	s.complete(input(1))
	s.GreaterOrEqual(s.upgradedAt[1], time.Minute)
	s.Less(s.upgradedAt[24], 2*time.Minute)
	s.GreaterOrEqual(s.upgradedAt[25], 2*time.Minute)
	s.Less(s.upgradedAt[99], 3*time.Minute)
}

func (s *stageSuite) TestSpec11_3_APromotionOfTheLastStepKeepsTheOtherLimits() {
	s.policies[0].Spec.Steps = []outriggerv1.RolloutStep{
		{UpTo: intstr.FromInt32(1)},
		{UpTo: intstr.FromString("100%")},
	}
	s.policies[0].Spec.MaxUnavailablePerOwner = 1
	plan := s.next
	sleeping := func(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		result, err := plan(ctx, input)
		result.Phase, result.Pods = protocol.PhaseWaiting, nil
		return result, err
	}
	s.script = []func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error){s.next, s.next, sleeping, s.next, s.next}
	s.request(2*time.Minute, protocol.PromoteUpdate, approval(1), "step 2 of 2 ended; the rollout upgrades all remaining pods within the other limits")
	s.complete(input(1))
	last := s.written[len(s.written)-1].Stage
	s.False(last.Done)
	s.Require().NotNil(last.Step)
	s.Equal(1, last.Step.MaxPerOwner)
	s.Equal(2, last.Index)
}

func (s *stageSuite) TestSpec11_3_ThereIsNothingToApproveWithoutAPolicy() {
	s.policies = nil
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		s.Nil(input.Stage)
		s.upgradedAt = append(s.upgradedAt, make([]time.Duration, len(input.Pods))...)
		return written(input.Pods), nil
	}
	s.plan(1)
	s.waits()
	s.script = append(s.script, s.next)
	s.request(time.Minute, protocol.ApproveUpdate, approval(0), "the rollout of generation 1 has no steps")
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1}) }, time.Hour)
	s.complete(input(1))
}

func (s *stageSuite) TestSpec11_3_APauseDuringTheBakeTimeHoldsTheNextStep() {
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann"}) }, time.Minute)
	s.env.RegisterDelayedCallback(func() { s.Equal(protocol.PhasePaused, s.query().Phase) }, 20*time.Minute)
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "ann"}) }, 30*time.Minute)
	s.request(time.Hour, protocol.ApproveUpdate, approval(1), "step 2 of 3 is approved")
	s.complete(input(1))
	s.GreaterOrEqual(s.upgradedAt[1], 30*time.Minute)
	s.Less(s.upgradedAt[1], 31*time.Minute, "the bake time passed during the pause")
}

func (s *stageSuite) TestSpec11_2_AChangedPolicyAppliesFromTheNextStepOn() {
	s.env.RegisterDelayedCallback(func() {
		s.policies[0].Spec.Steps[0].Bake.Duration = 100 * time.Hour
		s.policies[0].Spec.Steps[1] = outriggerv1.RolloutStep{UpTo: intstr.FromInt32(2), Bake: &metav1.Duration{Duration: time.Hour}}
	}, time.Minute)
	s.complete(input(1))
	s.GreaterOrEqual(s.upgradedAt[1], 10*time.Minute)
	s.Less(s.upgradedAt[1], 11*time.Minute, "the step that has begun keeps its bake time")
	s.GreaterOrEqual(s.upgradedAt[2], 70*time.Minute, "the next step is the changed step")
}

func (s *stageSuite) TestSpec11_2_ANewGenerationStartsFromTheFirstStep() {
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2}) }, time.Hour)
	next := s.continued()
	s.Equal(int64(2), next.Generation)
	s.Nil(next.Progress.Stage)
	s.Len(s.upgradedAt, 25)
}

// After a restore of the cluster, or a signal with a wrong generation, the run has another generation than
// the SidecarSet. The signal or plan with the correct generation contains the stage that status records.
func (s *stageSuite) TestSpec11_4_ACorrectedRunContinuesInTheRecordedStage() {
	recorded := &protocol.Stage{Generation: 2, Policy: "edge", Steps: 3, Index: 1, Step: &protocol.Step{UpTo: intstr.FromString("25%"), Approval: true}}
	for name, correct := range map[string]func(){
		"by a signal": func() {
			s.env.RegisterDelayedCallback(func() {
				s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2, Stage: recorded})
			}, time.Minute)
		},
		"by a plan": func() {
			s.script = nil
			s.answers(protocol.NextBatchResult{Phase: protocol.PhaseSuperseded, Generation: 2, Stage: recorded})
		},
		"by a plan while the run is paused": func() {
			s.script = nil
			s.waits()
			s.answers(protocol.NextBatchResult{Phase: protocol.PhaseSuperseded, Generation: 2, Stage: recorded})
			s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann"}) }, time.Minute)
		},
	} {
		s.Run(name, func() {
			s.SetupTest()
			correct()
			memos := s.memos()
			next := s.continued()
			s.Equal(int64(2), next.Generation)
			s.Equal(recorded, next.Progress.Stage)
			s.Equal(map[string]any{protocol.StageMemo: *recorded}, (*memos)[len(*memos)-1], "the next run inherits the memo")
		})
	}
}

func (s *stageSuite) memos() *[]map[string]any {
	var memos []map[string]any
	s.env.OnUpsertMemo(mock.Anything).Run(func(args mock.Arguments) { memos = append(memos, args.Get(0).(map[string]any)) }).Return(nil)
	return &memos
}

// When a run continues as a run of another generation, the next run inherits the memo.
func (s *stageSuite) TestSpec11_4_ARunWithoutAStageRemovesTheStageOfAnotherGeneration() {
	s.policies = nil
	s.Require().NoError(s.env.SetMemoOnStart(map[string]any{protocol.StageMemo: protocol.Stage{Generation: 1, Policy: "edge", Steps: 3}}))
	memos := s.memos()
	s.script = nil
	s.answers(ends(protocol.PhaseComplete))
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, input(2))
	s.Require().NoError(s.env.GetWorkflowError())
	s.Equal([]map[string]any{{protocol.StageMemo: nil}}, *memos)
}

func (s *stageSuite) TestSpec11_4_AFreshRunWithoutAPolicyWritesNoStage() {
	memos := s.memos()
	s.script = nil
	s.answers(ends(protocol.PhaseComplete))
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, input(2))
	s.Require().NoError(s.env.GetWorkflowError())
	s.Empty(*memos)
}

// During a week of waiting, the history becomes so long that the run continues as new.
func (s *stageSuite) TestSpec11_3_AnApprovalMayTakeAWeek() {
	from, timers := input(1), 0
	from.Progress.Stage = &protocol.Stage{Generation: 1, Policy: "edge", Steps: 3, Index: 1, Reached: new(s.begin),
		Step: &protocol.Step{UpTo: intstr.FromString("25%"), Approval: true}}
	s.env.SetOnTimerScheduledListener(func(string, time.Duration) {
		// The run checks the cluster every five minutes, and the environment does not count events.
		if timers++; timers == 7*24*12 {
			s.env.SetCurrentHistoryLength(longHistory)
		}
	})
	s.plan(3000)
	s.env.SetWorkflowRunTimeout(30 * 24 * time.Hour)
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, from)
	next := continuedAs(s.T(), s.env.GetWorkflowError())
	s.Equal(from.Progress.Stage.Index, next.Progress.Stage.Index)
	s.Require().NotNil(next.Progress.Stage.Reached)
	s.GreaterOrEqual(s.env.Now().Sub(s.begin), 6*24*time.Hour)
	s.Empty(s.upgradedAt)

	done := s.plans
	s.SetupTest()
	s.upgradedAt = make([]time.Duration, 25)
	s.request(time.Hour, protocol.ApproveUpdate, approval(1), "step 2 of 3 is approved")
	s.complete(next)
	s.Positive(done)
	s.GreaterOrEqual(s.upgradedAt[25], time.Hour)
}

func (s *stageSuite) TestSpec11_4_ALostRunContinuesInItsStep() {
	reached := s.begin.Add(-9 * time.Minute)
	from := input(1)
	from.Progress.Stage = &protocol.Stage{Generation: 1, Policy: "edge", Steps: 3, Reached: &reached,
		Step: &protocol.Step{Name: "canary", UpTo: intstr.FromInt32(1), Bake: 10 * time.Minute}}
	s.upgradedAt = make([]time.Duration, 1)
	s.request(time.Hour, protocol.ApproveUpdate, approval(1), "step 2 of 3 is approved")
	s.complete(from)
	s.GreaterOrEqual(s.upgradedAt[1], time.Minute, "the rest of the bake time")
	s.Less(s.upgradedAt[1], 2*time.Minute)
}

// The result of a plan may arrive after a promotion although the plan was requested before the promotion.
func (s *stageSuite) TestSpec11_3_APlanFromBeforeAPromotionIsDropped() {
	before := &protocol.Stage{Index: 0, Step: &protocol.Step{}}
	r := &run{progress: protocol.Progress{Stage: &protocol.Stage{Index: 1}}}
	valid, err := r.adoptStage(workflow.Context(nil), before, before)
	s.NoError(err)
	s.False(valid)
	s.Equal(1, r.progress.Stage.Index)
}

func (s *stageSuite) TestSpec11_6_FailedPodsPauseTheRunUntilAResumeAcceptsThem() {
	plan := s.next
	failing := func(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		result, err := plan(ctx, input)
		s.failed = 2
		result.Phase, result.Pods, result.Failure = protocol.PhaseWaiting, nil, &protocol.Failure{Pods: 2, Reason: "2 pods failed"}
		return result, err
	}
	s.script = append([]func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error){s.next, failing}, s.script...)
	s.env.RegisterDelayedCallback(func() {
		status := s.query()
		s.Equal(protocol.PhasePaused, status.Phase)
		s.Equal(&protocol.Pause{By: "RolloutPolicy edge", Reason: "2 pods failed"}, untimed(status.Pause))
		s.Zero(status.Stage.Tolerated, "nobody has accepted the failed pods")
		s.Len(s.upgradedAt, 1)
		s.failed = 3
	}, time.Hour)
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "ann"}) }, 2*time.Hour)
	s.request(3*time.Hour, protocol.ApproveUpdate, approval(1), "step 2 of 3 is approved")
	s.complete(input(1))
	last := s.asked[len(s.asked)-1].Stage
	s.Equal(3, last.Tolerated, "later steps keep the accepted pods, also those that failed during the pause")
	s.False(last.Accept)
	resumed := slices.IndexFunc(s.asked, func(input protocol.NextBatchInput) bool { return input.Stage != nil && input.Stage.Accept })
	s.Equal(new(2), s.asked[resumed].Stage.Failed, "the worker of this plan may not know which pods failed")
}

func (s *stageSuite) TestSpec11_12_ARequestForAStepDoesNotEndAnAbort() {
	r := &run{input: input(1)}
	r.progress.Stage = &protocol.Stage{Generation: 1, Steps: 2, Aborted: &protocol.Approval{By: "ann"}, Step: &protocol.Step{}}
	s.ErrorContains(r.checkStep(approval(0)), "the rollout of generation 1 is aborted")
	r.progress.Stage.Aborted = nil
	s.NoError(r.checkStep(approval(0)))
}

// A worker must not return a phase that the version of the workflow does not support.
func (s *stageSuite) TestSpec11_4_EachRequestForAPlanNamesTheKnownFeatures() {
	s.request(time.Hour, protocol.ApproveUpdate, approval(1), "step 2 of 3 is approved")
	s.complete(input(1))
	for _, asked := range s.asked {
		s.True(asked.Stages)
	}
}

// A run may continue as new right after a resume, and a promotion may follow the resume.
func (s *stageSuite) TestSpec11_6_AResumeIsKeptUntilAPlanAcceptsTheFailedPods() {
	from := input(1)
	from.Pause = new(protocol.PauseByPolicy("edge", "2 pods failed"))
	from.Progress.Stage = &protocol.Stage{Generation: 1, Policy: "edge", Steps: 3, Step: &protocol.Step{UpTo: intstr.FromInt32(1)}}
	s.env.RegisterDelayedCallback(func() {
		s.env.SetCurrentHistoryLength(longHistory)
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	}, time.Minute)
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, from)
	next := continuedAs(s.T(), s.env.GetWorkflowError())
	s.Nil(next.Pause)
	s.True(next.Progress.Stage.Accept)
	s.True(next.Progress.Stage.Next().Accept)

	s.SetupTest()
	s.failed = 4
	s.request(time.Hour, protocol.ApproveUpdate, approval(1), "step 2 of 3 is approved")
	s.complete(next)
	s.Equal(4, s.asked[len(s.asked)-1].Stage.Tolerated)
}

// The cache of the worker that plans may be older than the cache of the worker that upgrades.
func (s *stageSuite) TestSpec11_6_ABatchThatFailedPodsStoppedIsNotRepeatedAtOnce() {
	upgrade, stopped := s.upgrade, []time.Duration(nil)
	s.upgrade = func(ctx context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		if len(stopped) < 3 {
			stopped = append(stopped, s.env.Now().Sub(s.begin))
			return protocol.UpgradeBatchResult{Failing: true}, nil
		}
		return upgrade(ctx, input)
	}
	s.request(time.Hour, protocol.ApproveUpdate, approval(1), "step 2 of 3 is approved")
	s.complete(input(1))
	s.GreaterOrEqual(stopped[1]-stopped[0], skippedPause)
	s.GreaterOrEqual(stopped[2]-stopped[1], skippedPause)
}

// The sender of a late update no longer waits for the result.
func (s *stageSuite) TestSpec11_13_ALateUpdateHasNoEffect() {
	ends := s.begin.Add(time.Minute)
	late := "the request is from before " + ends.UTC().Format(time.RFC3339) + ", and comes too late"
	in := func(step int) protocol.StepRequest {
		return protocol.StepRequest{Approval: protocol.Approval{By: "ann"}, Generation: 1, Step: step, NotAfter: ends}
	}
	for _, update := range []string{protocol.ApproveUpdate, protocol.PromoteUpdate, protocol.AbortUpdate, protocol.RetryUpdate} {
		s.request(2*time.Minute, update, in(0), late)
	}
	for _, update := range []string{protocol.PauseUpdate, protocol.ResumeUpdate} {
		s.update(update, 2*time.Minute, protocol.Pause{By: "ann", NotAfter: ends}, nil, late)
	}
	s.update(protocol.PauseUpdate, 30*time.Second, protocol.Pause{By: "ann", NotAfter: ends}, &protocol.PauseResult{Paused: true, Message: "paused"}, "")
	s.update(protocol.ResumeUpdate, 40*time.Second, protocol.Pause{By: "ann", NotAfter: ends}, &protocol.PauseResult{Message: "resumed"}, "")
	s.request(50*time.Second, protocol.PromoteUpdate, in(0), "step 1 of 3 (canary) ended; the next step begins")
	s.request(3*time.Minute, protocol.PromoteUpdate, protocol.StepRequest{Generation: 1, Step: 1, Full: true}, "all steps ended")
	s.complete(protocol.RolloutInput{SidecarSet: protocol.SetReference{Name: "logs"}, Generation: 1})
}
