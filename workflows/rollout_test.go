package workflows

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stretchr/testify/suite"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

func TestRollout(t *testing.T) { suite.Run(t, &rolloutSuite{}) }

// rolloutSuite plays the cluster: it answers NextBatch from a script and
// records what the run does.
type rolloutSuite struct {
	suite.Suite
	testsuite.WorkflowTestSuite
	env *testsuite.TestWorkflowEnvironment

	script  []func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error)
	upgrade func(context.Context, protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error)
	asked   []protocol.NextBatchInput
	written []protocol.UpgradeBatchInput
}

func (s *rolloutSuite) SetupTest() {
	s.env = s.NewTestWorkflowEnvironment()
	s.script, s.asked, s.written = nil, nil, nil
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		return written(input.Pods), nil
	}
	s.env.RegisterWorkflowWithOptions(Rollout, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	s.env.RegisterActivityWithOptions(s.nextBatch, activity.RegisterOptions{Name: protocol.NextBatchActivity})
	s.env.RegisterActivityWithOptions(s.upgradeBatch, activity.RegisterOptions{Name: protocol.UpgradeBatchActivity})
}

func (s *rolloutSuite) nextBatch(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
	s.asked = append(s.asked, input)
	s.Require().NotEmpty(s.script, "the run asked for more than it should")
	answer := s.script[0]
	s.script = s.script[1:]
	return answer(ctx, input)
}

func (s *rolloutSuite) upgradeBatch(ctx context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	s.written = append(s.written, input)
	return s.upgrade(ctx, input)
}

func written(pods []protocol.SelectedPod) protocol.UpgradeBatchResult {
	var result protocol.UpgradeBatchResult
	for _, pod := range pods {
		result.Written = append(result.Written, protocol.WrittenPod{PodReference: pod.PodReference, ResourceVersion: "2"})
	}
	return result
}

func (s *rolloutSuite) answers(results ...protocol.NextBatchResult) {
	for _, result := range results {
		s.script = append(s.script, func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) { return result, nil })
	}
}

// waits is a NextBatch with nothing to say until it is withdrawn.
func (s *rolloutSuite) waits() {
	s.script = append(s.script, func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		return protocol.NextBatchResult{}, activity.ErrResultPending
	})
}

func (s *rolloutSuite) run() protocol.RolloutResult {
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, input(1))
	s.Require().True(s.env.IsWorkflowCompleted())
	s.Require().NoError(s.env.GetWorkflowError())
	var result protocol.RolloutResult
	s.Require().NoError(s.env.GetWorkflowResult(&result))
	s.Empty(s.script, "the run ended before its script")
	return result
}

func input(generation int64) protocol.RolloutInput {
	return protocol.RolloutInput{SidecarSet: protocol.SetReference{Name: "logs", UID: "u1"}, Generation: generation}
}

func pod(name string) protocol.PodReference {
	return protocol.PodReference{Namespace: "default", Name: name, UID: "uid-of-pod"}
}

func batch(names ...string) protocol.NextBatchResult {
	result := protocol.NextBatchResult{Phase: protocol.PhaseProgressing}
	for _, name := range names {
		result.Pods = append(result.Pods, protocol.SelectedPod{PodReference: pod(name)})
	}
	return result
}

func ends(phase protocol.Phase) protocol.NextBatchResult {
	return protocol.NextBatchResult{Phase: phase, Message: "done"}
}

func (s *rolloutSuite) TestUpgradesBatchAfterBatchUntilComplete() {
	s.answers(batch("a", "b"), batch("c"), ends(protocol.PhaseComplete))
	result := s.run()
	s.Equal(protocol.RolloutResult{Phase: protocol.PhaseComplete, Message: "done", Batches: 2, Upgraded: 3}, result)
	s.Equal([]protocol.UpgradeBatchInput{
		{SidecarSet: input(1).SidecarSet, Generation: 1, Pods: batch("a", "b").Pods},
		{SidecarSet: input(1).SidecarSet, Generation: 1, Pods: batch("c").Pods},
	}, s.written)
}

func (s *rolloutSuite) TestPlansOnlyAfterTheLastWritesAreSeen() {
	s.answers(batch("a"), batch("b"), ends(protocol.PhaseComplete))
	s.run()
	s.Empty(s.asked[0].Written)
	s.Equal([]protocol.WrittenPod{{PodReference: pod("a"), ResourceVersion: "2"}}, s.asked[1].Written)
	s.Equal([]protocol.WrittenPod{{PodReference: pod("b"), ResourceVersion: "2"}}, s.asked[2].Written)
}

func (s *rolloutSuite) TestEveryKindOfEndEndsTheRun() {
	for _, phase := range []protocol.Phase{
		protocol.PhaseComplete, protocol.PhasePartitionReached, protocol.PhaseNotUpdate, protocol.PhaseDeleted,
	} {
		s.SetupTest()
		s.answers(ends(phase))
		s.Equal(phase, s.run().Phase)
	}
}

func (s *rolloutSuite) TestPauseHoldsBetweenBatchesAndResumeGoesOn() {
	s.answers(batch("a"))
	s.waits()
	s.answers(batch("b"), ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.PauseSignal, protocol.Hold{Who: "ann", Why: "lunch"})
	}, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.Len(s.written, 1)
		status := s.query()
		s.Equal(protocol.PhasePaused, status.Phase)
		s.Equal("paused by signal from ann: lunch", status.Message)
		s.Equal(&protocol.Hold{Who: "ann", Why: "lunch"}, status.Hold)
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Hold{Who: "ann"})
	}, time.Hour)
	s.Equal(2, s.run().Upgraded)
	s.Nil(s.query().Hold)
}

func (s *rolloutSuite) TestPauseAndResumeThatArriveTogetherChangeNothing() {
	s.answers(ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.PauseSignal, protocol.Hold{})
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Hold{})
	}, 0)
	s.Equal(protocol.PhaseComplete, s.run().Phase)
}

func (s *rolloutSuite) TestNewerGenerationTakesOver() {
	s.answers(batch("a"))
	s.waits()
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 3})
	}, time.Minute)
	next := s.continued()
	s.Equal(int64(3), next.Generation)
	s.Equal([]protocol.WrittenPod{{PodReference: pod("a"), ResourceVersion: "2"}}, next.Progress.Written)
	s.Zero(next.Progress.Batches)
}

func (s *rolloutSuite) TestGenerationSeenInTheClusterTakesOver() {
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseSuperseded, Generation: 2})
	s.Equal(int64(2), s.continued().Generation)
}

func (s *rolloutSuite) TestHoldOutlivesANewGeneration() {
	s.waits()
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Hold{Who: "ann"}) }, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Hour)
	next := s.continued()
	s.Equal(int64(2), next.Generation)
	s.Equal(&protocol.Hold{Who: "ann"}, next.Hold)
}

func (s *rolloutSuite) TestSameOrOlderGenerationChangesNothing() {
	s.answers(ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{})
	}, 0)
	s.Equal(protocol.PhaseComplete, s.run().Phase)
}

func (s *rolloutSuite) TestSpecPauseWaitsForTheNextGeneration() {
	s.answers(protocol.NextBatchResult{Phase: protocol.PhasePaused})
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, 24*time.Hour)
	s.Equal(int64(2), s.continued().Generation)
}

func (s *rolloutSuite) TestRefusedPodsAreNamedToThePlannerAndTheRunRests() {
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		return protocol.UpgradeBatchResult{Failed: []protocol.FailedPod{{PodReference: input.Pods[0].PodReference, Reason: "Forbidden"}}}, nil
	}
	s.answers(batch("a"), batch("a"), ends(protocol.PhaseComplete))
	started := s.env.Now()
	s.run()
	s.Equal([]protocol.PodReference{pod("a")}, s.asked[2].Refused)
	s.Equal(3*shortestRest, s.env.Now().Sub(started))
}

// The test environment cancels an activity as the server does when no worker
// has it in hand: there is no result.
func (s *rolloutSuite) TestASignalEndsABatchWithAReserveAndAllOfItMayHaveBeenWritten() {
	s.answers(withReserve(batch("a"), "b", "c"))
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		s.Equal(batch("b", "c").Pods, input.Reserve)
		return protocol.UpgradeBatchResult{}, activity.ErrResultPending
	}
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Hold{Who: "ann"}) }, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.Equal(protocol.PhasePaused, s.query().Phase)
		s.Zero(s.query().Upgraded)
		s.answers(ends(protocol.PhaseComplete))
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Hold{})
	}, time.Hour)
	s.run()
	s.Equal([]protocol.WrittenPod{{PodReference: pod("a")}, {PodReference: pod("b")}, {PodReference: pod("c")}}, s.asked[1].Written)
}

func (s *rolloutSuite) TestABatchWithoutAReserveIsNotCutShort() {
	s.answers(batch("a"), ends(protocol.PhaseComplete))
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{})
		return written(input.Pods), nil
	}
	s.Equal(1, s.run().Upgraded)
}

func withReserve(result protocol.NextBatchResult, names ...string) protocol.NextBatchResult {
	result.Reserve = batch(names...).Pods
	return result
}

func (s *rolloutSuite) TestActivityFailuresAreTriedAgain() {
	s.script = append(s.script, func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		return protocol.NextBatchResult{}, errors.New("API server away")
	})
	s.answers(ends(protocol.PhaseComplete))
	s.Equal(protocol.PhaseComplete, s.run().Phase)
}

func (s *rolloutSuite) TestLongHistoryContinuesAsNewWithItsProgress() {
	s.env.SetCurrentHistoryLength(longHistory)
	next := s.continued()
	s.Equal(int64(1), next.Generation)
	s.Empty(s.asked)
}

func (s *rolloutSuite) query() protocol.RolloutStatus {
	value, err := s.env.QueryWorkflow(protocol.StatusQuery)
	s.Require().NoError(err)
	var status protocol.RolloutStatus
	s.Require().NoError(value.Get(&status))
	return status
}

// continued runs until the run continues as new, and returns its successor's input.
func (s *rolloutSuite) continued() protocol.RolloutInput {
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, input(1))
	return continuedAs(s.T(), s.env.GetWorkflowError())
}

func continuedAs(t *testing.T, err error) protocol.RolloutInput {
	t.Helper()
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &next)
	require.Equal(t, protocol.RolloutWorkflow, next.WorkflowType.Name)
	var input protocol.RolloutInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &input))
	return input
}
