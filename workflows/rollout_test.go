package workflows

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"github.com/stretchr/testify/suite"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
)

// testRun is the id that the test environment gives to every run.
const testRun = "default-test-run-id"

func TestRollout(t *testing.T) { suite.Run(t, &rolloutSuite{}) }

type rolloutSuite struct{ simulation }

func (s *rolloutSuite) TestUpgradesBatchAfterBatchUntilComplete() {
	s.answers(batch("a", "b"), batch("c"), ends(protocol.PhaseComplete))
	result := s.run()
	s.Equal(protocol.RolloutResult{Phase: protocol.PhaseComplete, Message: "done", Batches: 2, Upgraded: 3}, result)
	s.Equal([]protocol.UpgradeBatchInput{
		{SidecarSet: input(1).SidecarSet, Generation: 1, Pods: batch("a", "b").Pods, Run: testRun},
		{SidecarSet: input(1).SidecarSet, Generation: 1, Pods: batch("c").Pods, Run: testRun, Written: written(batch("a", "b").Pods).Written},
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
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, withImages(1, "agent=agent:v1"))
	next := continuedAs(s.T(), s.env.GetWorkflowError())
	s.Equal(int64(2), next.Generation)
	s.Empty(next.Images, "they are not known")
}

func withImages(generation int64, images string) protocol.RolloutInput {
	in := input(generation)
	in.Images = images
	return in
}

func (s *rolloutSuite) TestARunContinuesWithTheImagesOfItsGeneration() {
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseWaiting})
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2, Images: "agent=agent:v2"})
	}, time.Minute)
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, withImages(1, "agent=agent:v1"))
	s.Equal("agent=agent:v2", continuedAs(s.T(), s.env.GetWorkflowError()).Images)
}

// The operator sends the images of the generation that the run already has.
func (s *rolloutSuite) TestARunTakesTheImagesOfItsGenerationFromASignal() {
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseWaiting})
	s.env.RegisterDelayedCallback(func() {
		s.env.SetContinueAsNewSuggested(true)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2, Images: "agent=agent:v2"})
	}, time.Minute)
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, input(2))
	next := continuedAs(s.T(), s.env.GetWorkflowError())
	s.Equal(int64(2), next.Generation)
	s.Equal("agent=agent:v2", next.Images)
}

func (s *rolloutSuite) TestSameOrOlderGenerationChangesNothing() {
	s.answers(ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{})
	}, 0)
	s.Equal(protocol.PhaseComplete, s.run().Phase)
}

// wakesAfter sends the signal generation after d. The operator sends this signal when the cluster has pods to
// upgrade.
func (s *simulation) wakesAfter(d time.Duration) {
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	}, d)
}

func (s *rolloutSuite) TestWaitingSleepsInTheRunUntilItIsWoken() {
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseWaiting}, batch("a"), ends(protocol.PhaseComplete))
	s.wakesAfter(time.Minute)
	started := s.env.Now()
	s.Equal(1, s.run().Upgraded)
	s.Equal(time.Minute, s.env.Now().Sub(started))
}

func (s *rolloutSuite) TestSpec8_3_ASleepingRunPlansEveryFiveMinutes() {
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseWaiting}, protocol.NextBatchResult{Phase: protocol.PhaseWaiting}, ends(protocol.PhaseComplete))
	started := s.env.Now()
	s.run()
	s.Equal(2*checkInterval, s.env.Now().Sub(started))
}

func (s *rolloutSuite) TestSpec11_11_ARunThatABudgetStopsPlansEveryMinute() {
	current := &protocol.Stage{Policy: "p", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("100%"), RespectBudgets: true}}
	blocked := protocol.NextBatchResult{Phase: protocol.PhaseWaiting, Stage: current, Again: time.Minute}
	waiting := protocol.NextBatchResult{Phase: protocol.PhaseWaiting, Stage: current}
	s.answers(blocked, blocked, waiting, ends(protocol.PhaseComplete))
	started := s.env.Now()
	s.run()
	s.Equal(2*time.Minute+checkInterval, s.env.Now().Sub(started))
}

// A check of the cluster consists of a timer and an activity. A workflow task follows the timer, and another
// workflow task follows the activity.
func (s *rolloutSuite) TestSpec8_3_ARunThatWaitsCosts150EventsAnHourAtMost() {
	const task, timer, look = 3, 2, 3
	events := 0
	s.env.SetOnTimerScheduledListener(func(string, time.Duration) { events += timer + task })
	s.env.SetOnActivityStartedListener(func(*activity.Info, context.Context, converter.EncodedValues) { events += look + task })
	s.env.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(mock.Arguments) { events++ }).Return(nil)
	var wait func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error)
	wait = func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		s.script = append(s.script, wait)
		return protocol.NextBatchResult{Phase: protocol.PhaseWaiting, Message: "an image cannot be pulled"}, nil
	}
	s.script = append(s.script, wait)
	before := 0
	s.env.RegisterDelayedCallback(func() { before = events }, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.InDelta(132, events-before, 12)
		s.LessOrEqual(events-before, 150)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Hour+time.Minute)
	s.continued()
}

// After a mistyped signal, or in a restored cluster, the SidecarSet does not have the generation
// of the signal.
func (s *rolloutSuite) TestGenerationThatTheClusterNeverHadIsCorrected() {
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseSuperseded, Generation: 1})
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, input(999))
	s.Equal(int64(1), continuedAs(s.T(), s.env.GetWorkflowError()).Generation)
}

func (s *rolloutSuite) TestBatchWithoutWritesKeepsUnobservedWrites() {
	s.answers(batch("a"), batch("b"), ends(protocol.PhaseComplete))
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		if input.Pods[0].Name == "b" {
			return protocol.UpgradeBatchResult{Skipped: 1}, nil
		}
		return written(input.Pods), nil
	}
	s.run()
	s.Equal([]protocol.WrittenPod{{PodReference: pod("a"), ResourceVersion: "2"}}, s.asked[2].Written)
	s.Equal(s.asked[1].Written, s.written[1].Written)
}

func (s *rolloutSuite) TestSpec7_2_ARunThatEndsWhileConditionsAreWrittenLooksOnceMore() {
	s.env.RegisterActivityWithOptions(func(context.Context, protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error) {
		return protocol.WriteUpgradableConditionsResult{}, nil
	}, activity.RegisterOptions{Name: protocol.WriteUpgradableConditionsActivity})
	waiting := protocol.NextBatchResult{Phase: protocol.PhaseWaiting, TrueConditions: []protocol.PodReference{pod("a")}}
	last := protocol.NextBatchResult{Phase: protocol.PhaseProgressing, TrueConditions: []protocol.PodReference{pod("b")}}
	s.answers(waiting, ends(protocol.PhaseComplete), last, ends(protocol.PhaseComplete))
	s.run()
}

func (s *rolloutSuite) TestSpec7_2_NoBatchWaitsForTrueConditions() {
	var written [][]protocol.PodReference
	s.env.RegisterActivityWithOptions(func(_ context.Context, input protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error) {
		written = append(written, input.Pods)
		return protocol.WriteUpgradableConditionsResult{Written: []protocol.WrittenPod{{PodReference: input.Pods[0], ResourceVersion: "9"}}}, nil
	}, activity.RegisterOptions{Name: protocol.WriteUpgradableConditionsActivity})
	waiting := protocol.NextBatchResult{Phase: protocol.PhaseWaiting, TrueConditions: []protocol.PodReference{pod("a")}}
	s.answers(waiting, batch("b"))
	// A plan that is requested while conditions are being written contains no conditions.
	var last func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error)
	last = func(_ context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		if input.SkipTrueConditions {
			s.script = append(s.script, last)
			return ends(protocol.PhaseComplete), nil
		}
		s.answers(ends(protocol.PhaseComplete))
		return protocol.NextBatchResult{Phase: protocol.PhaseProgressing, TrueConditions: []protocol.PodReference{pod("b")}}, nil
	}
	s.script = append(s.script, last)
	s.run()
	s.Equal([][]protocol.PodReference{{pod("a")}, {pod("b")}}, written)
	s.True(s.asked[1].SkipTrueConditions, "not twice")
}

func (s *rolloutSuite) TestRejectedPodsAreNamedToThePlannerAndTheRunRests() {
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		return protocol.UpgradeBatchResult{Rejected: []protocol.RejectedPod{{PodReference: input.Pods[0].PodReference, Reason: "Forbidden"}}}, nil
	}
	waiting := protocol.NextBatchResult{Phase: protocol.PhaseWaiting}
	s.answers(batch("a"), waiting, batch("a"), batch("a"), ends(protocol.PhaseComplete))
	started := s.env.Now()
	// The newest plan chose a batch, so the plan had the phase Progressing. After the rejection of the batch,
	// the run shows the phase Waiting.
	s.env.RegisterDelayedCallback(func() { s.Equal(protocol.PhaseWaiting, s.query().Phase) }, 2*minBackoff)
	s.run()
	known := prints(pod("a"))
	s.Equal(protocol.Rejected{Pods: known}, s.asked[1].Rejected, "others come first")
	s.Equal(protocol.Rejected{Pods: known, Again: 1}, s.asked[2].Rejected, "then it is tried again")
	s.Equal(s.asked[2].Rejected, s.written[1].Rejected)
	s.Equal((1+2+4)*minBackoff, s.env.Now().Sub(started))
}

// The test environment cancels an activity without a result, like a server while no worker runs.
func (s *rolloutSuite) TestASignalEndsABatchAndAllQueuedPodsMayHaveBeenWritten() {
	s.answers(withQueued(batch("a"), "b", "c"))
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		s.Equal(batch("b", "c").Pods, input.Queued)
		return protocol.UpgradeBatchResult{}, activity.ErrResultPending
	}
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann"}) }, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.Equal(protocol.PhasePaused, s.query().Phase)
		s.Zero(s.query().Upgraded)
		s.answers(ends(protocol.PhaseComplete))
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{})
	}, 4*time.Minute)
	s.run()
	s.Equal([]protocol.WrittenPod{{PodReference: pod("a")}, {PodReference: pod("b")}, {PodReference: pod("c")}}, s.asked[1].Written)
}

// A batch without queued pods may wait for slots, too.
func (s *rolloutSuite) TestASignalEndsABatchWithoutQueuedPods() {
	s.answers(batch("a"))
	s.upgrade = func(context.Context, protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		return protocol.UpgradeBatchResult{}, activity.ErrResultPending
	}
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Second)
	started := s.env.Now()
	s.Equal(int64(2), s.continued().Generation)
	s.Less(s.env.Now().Sub(started), time.Minute)
}

func withQueued(result protocol.NextBatchResult, names ...string) protocol.NextBatchResult {
	result.Queued = batch(names...).Pods
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

// untimed returns a copy of a pause without the time of the pause.
func untimed(pause *protocol.Pause) *protocol.Pause {
	if pause == nil {
		return nil
	}
	without := *pause
	without.At = time.Time{}
	return &without
}

func (s *simulation) query() protocol.RolloutStatus {
	value, err := s.env.QueryWorkflow(protocol.StatusQuery)
	s.Require().NoError(err)
	var status protocol.RolloutStatus
	s.Require().NoError(value.Get(&status))
	return status
}

// continued executes a run until the run continues as new, and returns the input of the next run.
func (s *simulation) continued() protocol.RolloutInput { return s.continuedFrom(input(1)) }

func (s *simulation) continuedFrom(from protocol.RolloutInput) protocol.RolloutInput {
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, from)
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
