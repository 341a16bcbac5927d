package workflows

import (
	"context"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

type planFunc = func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error)

func (s *stageSuite) failing(failure protocol.Failure) planFunc {
	return func(_ context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		return protocol.NextBatchResult{Phase: protocol.PhaseWaiting, Failure: &failure, Stage: input.Stage}, nil
	}
}

func quarantinedPlan(_ context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
	return protocol.NextBatchResult{Phase: protocol.PhaseQuarantined, Message: "rolled back", Stage: input.Stage}, nil
}

func (s *stageSuite) TestSpec11_12_AFailedRunIsQuarantinedUntilARetry() {
	failure := protocol.Failure{Pods: 2, Reason: "2 pods failed", Quarantine: &protocol.Quarantine{Hash: "bad", Revision: "edge-1", Reason: "2 pods failed"}}
	s.script = append([]planFunc{s.next, s.failing(failure), quarantinedPlan}, s.script...)
	s.env.RegisterDelayedCallback(func() {
		status := s.query()
		s.Equal(protocol.PhaseQuarantined, status.Phase)
		s.Equal("edge-1", status.Stage.Quarantine.Revision)
		s.False(status.Stage.Quarantine.Since.IsZero())
		s.Nil(status.Pause)
		s.Len(s.upgradedAt, 1)
	}, time.Minute)
	s.request(2*time.Minute, protocol.RetryUpdate, protocol.StepRequest{Generation: 1}, "the rollout of generation 1 restarts")
	s.request(time.Hour, protocol.PromoteUpdate, protocol.StepRequest{Generation: 1, Step: 1, Full: true}, "all steps ended; the rollout upgrades all remaining pods")
	s.complete(input(1))
	s.Greater(len(s.upgradedAt), 1)
}

func (s *stageSuite) TestSpec11_12_AQuarantineIsCarriedToTheNextGeneration() {
	failure := protocol.Failure{Pods: 2, Quarantine: &protocol.Quarantine{Hash: "bad", Revision: "edge-1"}}
	s.script = append([]planFunc{s.next, s.failing(failure)}, quarantinedPlan)
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2}) }, time.Minute)
	next := s.continued()
	s.EqualValues(2, next.Generation)
	s.EqualValues(1, next.Progress.Stage.Generation, "NextBatch compares the content")
	s.Equal("bad", next.Progress.Stage.Quarantine.Hash)
}

// The SidecarSet changes before the run has planned the rollback.
func (s *stageSuite) TestSpec11_12_AnAbortIsCarriedToTheNextGeneration() {
	aborted := &protocol.Stage{Generation: 1, Hash: "bad", Aborted: &protocol.Approval{By: "ann"}}
	from := input(1)
	from.Progress.Stage = aborted
	s.script = []planFunc{func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		return protocol.NextBatchResult{Phase: protocol.PhaseSuperseded, Generation: 2}, nil
	}}
	next := s.continuedFrom(from)
	s.EqualValues(2, next.Generation)
	s.Equal(aborted, next.Progress.Stage)
}

// Status does not show the retry yet, so the signal of the operator contains a quarantine that the retry has
// ended.
func (s *stageSuite) TestSpec11_12_ARetryOutlivesTheNextGeneration() {
	stale := quarantinedStage()
	from := input(1)
	from.Progress.Stage = stale
	s.script = []planFunc{quarantinedPlan, quarantinedPlan}
	s.request(time.Minute, protocol.RetryUpdate, protocol.StepRequest{Generation: 1}, "the rollout of generation 1 restarts")
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2, Stage: stale})
	}, time.Minute)
	next := s.continuedFrom(from)
	s.EqualValues(2, next.Generation)
	s.Equal(&protocol.Stage{Generation: 1, Hash: "bad", Policy: "a", Retried: stale.Quarantine.Since}, next.Progress.Stage)
}

func quarantinedStage() *protocol.Stage {
	since := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	return &protocol.Stage{Generation: 1, Hash: "bad", Policy: "a", Steps: 1, Quarantine: &protocol.Quarantine{Hash: "bad", Revision: "edge-1", Since: since}}
}

// Temporal was restored to a time before the rollback, and the operator signals the quarantine in status.
func (s *stageSuite) TestSpec11_12_ARestoredRunContinuesItsRollback() {
	lost := quarantinedStage()
	signal := func(after time.Duration, sent protocol.Stage) {
		s.env.RegisterDelayedCallback(func() {
			s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1, Stage: &sent})
		}, after)
	}
	s.script = []planFunc{quarantinedPlan, quarantinedPlan, quarantinedPlan, quarantinedPlan}
	other := *lost
	other.Generation = 2
	signal(time.Minute, other)
	s.env.RegisterDelayedCallback(func() { s.Nil(s.query().Stage, "the quarantine of another generation") }, 2*time.Minute)
	signal(3*time.Minute, *lost)
	s.env.RegisterDelayedCallback(func() { s.Equal(lost, s.query().Stage) }, 4*time.Minute)
	s.request(5*time.Minute, protocol.RetryUpdate, protocol.StepRequest{Generation: 1}, "the rollout of generation 1 restarts")
	signal(5*time.Minute, *lost)
	s.env.RegisterDelayedCallback(func() {
		s.Nil(s.query().Stage.Quarantine, "status does not show the retry yet")
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, 6*time.Minute)
	s.continuedFrom(input(1))
}

func (s *stageSuite) TestSpec11_12_AnAbortWithoutAFormerRevisionPausesTheRun() {
	s.script = append([]planFunc{s.next, s.next, func(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		s.Equal(&protocol.Approval{By: "ann"}, input.Stage.Aborted)
		return s.failing(protocol.Failure{Reason: "ann aborted the rollout of generation 1"})(ctx, input)
	}}, s.script...)
	s.request(time.Minute, protocol.AbortUpdate, protocol.StepRequest{Generation: 1, Approval: protocol.Approval{By: "ann"}},
		"generation 1 is aborted; its pods go back to the revision whose rollout ended last")
	s.env.RegisterDelayedCallback(func() {
		status := s.query()
		s.Equal(&protocol.Pause{By: "ann", Reason: "ann aborted the rollout of generation 1"}, untimed(status.Pause))
		s.Nil(status.Stage.Aborted)
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{})
	}, 2*time.Minute)
	s.request(3*time.Minute, protocol.PromoteUpdate, protocol.StepRequest{Generation: 1, Full: true}, "all steps ended; the rollout upgrades all remaining pods")
	s.complete(input(1))
}

// abortThenPause sends a pause while the plan after an abort is pending.
func (s *stageSuite) abortThenPause() {
	s.waits()
	s.waits()
	s.request(time.Minute, protocol.AbortUpdate, protocol.StepRequest{Generation: 1, Hash: "bad", Approval: protocol.Approval{By: "ann"}},
		"generation 1 is aborted; its pods go back to the revision whose rollout ended last")
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "bob"}) }, 2*time.Minute)
}

func (s *stageSuite) pausedPlan(_ context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
	s.True(input.Paused)
	return protocol.NextBatchResult{Phase: protocol.PhasePaused, Stage: input.Stage}, nil
}

func (s *stageSuite) TestSpec11_12_AnAbortBeforeAPauseIsQuarantinedDuringThePause() {
	s.script = nil
	s.abortThenPause()
	quarantine := &protocol.Quarantine{Hash: "bad", Revision: "edge-1", Reason: "ann aborted the rollout of generation 1"}
	s.script = append(s.script, func(_ context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		s.True(input.Paused)
		s.Equal("ann", input.Stage.Aborted.By)
		return protocol.NextBatchResult{Phase: protocol.PhasePaused, Failure: &protocol.Failure{Reason: quarantine.Reason, Quarantine: quarantine}, Stage: input.Stage}, nil
	}, func(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		s.NotNil(input.Stage.Quarantine, "the worker notifies the operator of the quarantine")
		return s.pausedPlan(ctx, input)
	})
	s.env.RegisterDelayedCallback(func() {
		status := s.query()
		s.Equal(protocol.PhasePaused, status.Phase)
		s.Equal("bob", status.Pause.By)
		s.Equal("edge-1", status.Stage.Quarantine.Revision)
		s.Nil(status.Stage.Aborted)
		s.Empty(s.script)
		s.script = append(s.script, quarantinedPlan)
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "bob"})
	}, 3*time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.Equal(protocol.PhaseQuarantined, s.query().Phase)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, 4*time.Minute)
	s.continued()
}

// If there is no revision for the rollback, the pause names the user of the abort and the failure.
func (s *stageSuite) TestSpec11_12_AnAbortWithoutARevisionShowsTheFailureDuringAPause() {
	s.script = nil
	s.abortThenPause()
	s.script = append(s.script, func(_ context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		return protocol.NextBatchResult{Phase: protocol.PhasePaused, Failure: &protocol.Failure{Reason: "no earlier revision"}, Stage: input.Stage}, nil
	}, s.pausedPlan)
	s.env.RegisterDelayedCallback(func() {
		s.Empty(s.script)
		s.Equal("ann: no earlier revision", s.query().Pause.By+": "+s.query().Pause.Reason)
		s.Nil(s.query().Stage.Aborted)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, 3*time.Minute)
	s.continued()
}

// During a rolling update, an older worker returns no failure to a paused run.
func (s *stageSuite) TestSpec11_12_AnAbortBeforeAPauseIsPlannedAgainAfterFiveMinutes() {
	s.script = nil
	s.abortThenPause()
	s.script = append(s.script, s.pausedPlan)
	s.env.RegisterDelayedCallback(func() {
		s.Empty(s.script)
		s.Equal(protocol.PhasePaused, s.query().Phase)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, 6*time.Minute)
	s.NotNil(s.continued().Progress.Stage.Aborted)
}

func (s *stageSuite) TestSpec11_12_ARunOfAnOlderVersionWaitsForTheResumeAfterAnAbort() {
	s.env.OnGetVersion("roll back a paused run", workflow.DefaultVersion, workflow.Version(1)).Return(workflow.DefaultVersion)
	s.script = nil
	s.abortThenPause()
	s.env.RegisterDelayedCallback(func() {
		s.NotNil(s.query().Stage.Aborted)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, 6*time.Minute)
	s.continued()
}

// An older operator started the run with a quarantine in the input and in the signal, but without a memo.
func (s *stageSuite) TestSpec11_12_ARunThatStartedWithAQuarantineShowsItOnceItIsSignalledAgain() {
	quarantined := quarantinedStage()
	from := input(1)
	from.Progress.Stage = quarantined
	s.script = []planFunc{quarantinedPlan, quarantinedPlan, quarantinedPlan}
	signal := func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1, Stage: quarantined})
	}
	memos := 0
	s.env.OnUpsertMemo(mock.Anything).Run(func(mock.Arguments) { memos++ }).Return(nil)
	s.env.RegisterDelayedCallback(signal, 0)
	s.env.RegisterDelayedCallback(func() { s.Zero(memos); signal() }, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.Equal(1, memos)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, 2*time.Minute)
	s.continuedFrom(from)
}
