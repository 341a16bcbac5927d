package workflows

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/outrigger/outrigger/api/protocol"
)

// migrations plays pods that migrate: AwaitMigration answers from a script.
func (s *rolloutSuite) migrations(answers ...protocol.AwaitMigrationResult) (resets *[]protocol.ResetBatchInput) {
	resets = &[]protocol.ResetBatchInput{}
	s.env.RegisterActivityWithOptions(func(_ context.Context, input protocol.AwaitMigrationInput) (protocol.AwaitMigrationResult, error) {
		if len(answers) == 0 && input.Upgrading {
			return protocol.AwaitMigrationResult{}, nil
		}
		s.Require().NotEmpty(answers, "migration was awaited more often than it should")
		answer := answers[0]
		answers = answers[1:]
		return answer, nil
	}, activity.RegisterOptions{Name: protocol.AwaitMigrationActivity})
	s.env.RegisterActivityWithOptions(func(_ context.Context, input protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
		*resets = append(*resets, input)
		return protocol.ResetBatchResult{Reset: len(input.Pods)}, nil
	}, activity.RegisterOptions{Name: protocol.ResetBatchActivity})
	return resets
}

func hotBatch(names ...string) protocol.NextBatchResult {
	result := batch(names...)
	result.Hot = true
	return result
}

func (s *rolloutSuite) TestSpec7_7_StandbyTwinsAreResetBesideTheBatches() {
	resets := s.migrations(
		protocol.AwaitMigrationResult{Pending: 2},
		protocol.AwaitMigrationResult{Pods: []protocol.PodReference{pod("a")}, Pending: 2},
		protocol.AwaitMigrationResult{Pods: []protocol.PodReference{pod("b")}, Pending: 1},
		protocol.AwaitMigrationResult{},
	)
	waiting := protocol.NextBatchResult{Phase: protocol.PhaseWaiting}
	s.answers(hotBatch("a", "b"), waiting, waiting, ends(protocol.PhaseComplete))
	s.wakesAfter(time.Minute)
	s.env.RegisterDelayedCallback(func() { s.Len(*resets, 2, "the migration sleeps until it is woken") }, 2*time.Minute)
	s.wakesAfter(3 * time.Minute)
	s.run()
	s.Equal([][]protocol.PodReference{{pod("a")}, {pod("b")}}, [][]protocol.PodReference{(*resets)[0].Pods, (*resets)[1].Pods})
}

func (s *rolloutSuite) TestSpec7_1_PauseDoesNotHoldResets() {
	resets := s.migrations(protocol.AwaitMigrationResult{Pods: []protocol.PodReference{pod("a")}, Pending: 1}, protocol.AwaitMigrationResult{})
	paused := protocol.NextBatchResult{Phase: protocol.PhasePaused}
	paused.Counts.Migrating = 1
	s.answers(paused)
	s.env.RegisterDelayedCallback(func() {
		s.Len(*resets, 1)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Hour)
	s.False(s.continued().Progress.Migrating)
}

func (s *rolloutSuite) TestMigrationOutlivesANewGeneration() {
	s.migrations()
	s.env.RegisterActivityWithOptions(func(context.Context, protocol.AwaitMigrationInput) (protocol.AwaitMigrationResult, error) {
		return protocol.AwaitMigrationResult{}, activity.ErrResultPending
	}, activity.RegisterOptions{Name: protocol.AwaitMigrationActivity, DisableAlreadyRegisteredCheck: true})
	s.answers(hotBatch("a"))
	s.waits()
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Minute)
	s.True(s.continued().Progress.Migrating)
}

func (s *rolloutSuite) TestRefusedResetsRestAndAreTriedAgain() {
	pods := []protocol.PodReference{pod("a")}
	s.migrations(protocol.AwaitMigrationResult{Pods: pods, Pending: 1}, protocol.AwaitMigrationResult{Pods: pods, Pending: 1}, protocol.AwaitMigrationResult{})
	tries := 0
	s.env.RegisterActivityWithOptions(func(context.Context, protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
		tries++
		if tries == 1 {
			return protocol.ResetBatchResult{Failed: []protocol.FailedPod{{PodReference: pod("a"), Reason: "Forbidden"}}}, nil
		}
		return protocol.ResetBatchResult{Reset: 1}, nil
	}, activity.RegisterOptions{Name: protocol.ResetBatchActivity, DisableAlreadyRegisteredCheck: true})
	s.answers(hotBatch("a"))
	s.waits()
	s.answers(ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() {
		s.Equal(2, tries)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	}, time.Minute)
	s.run()
}

func (s *rolloutSuite) TestSpec7_2_ConditionsAreWrittenOnceAndThenPlannedAgain() {
	var written []protocol.WriteUpgradableConditionsInput
	s.env.RegisterActivityWithOptions(func(_ context.Context, input protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error) {
		written = append(written, input)
		return protocol.WriteUpgradableConditionsResult{Written: []protocol.WrittenPod{{PodReference: pod("a"), ResourceVersion: "9"}}}, nil
	}, activity.RegisterOptions{Name: protocol.WriteUpgradableConditionsActivity})
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseProgressing, FalseConditions: []protocol.PodReference{pod("a")}}, ends(protocol.PhaseComplete))
	s.run()
	s.Equal([]protocol.WriteUpgradableConditionsInput{{SidecarSet: input(1).SidecarSet, Generation: 1, Pods: []protocol.PodReference{pod("a")}}}, written)
	s.Equal("9", s.asked[1].Written[0].ResourceVersion)
	s.False(s.asked[1].SkipConditions)
}

func (s *rolloutSuite) TestRefusedConditionsAreGivenUp() {
	s.env.RegisterActivityWithOptions(func(context.Context, protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error) {
		return protocol.WriteUpgradableConditionsResult{Failed: []protocol.FailedPod{{PodReference: pod("a"), Reason: "Forbidden"}}}, nil
	}, activity.RegisterOptions{Name: protocol.WriteUpgradableConditionsActivity})
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseProgressing, FalseConditions: []protocol.PodReference{pod("a")}}, ends(protocol.PhaseComplete))
	s.run()
	s.True(s.asked[1].SkipConditions)
}

func (s *rolloutSuite) TestSpec7_7_MigrationBeginsBesideABatchThatGoesOn() {
	var awaited []protocol.AwaitMigrationInput
	s.migrations()
	s.env.RegisterActivityWithOptions(func(_ context.Context, input protocol.AwaitMigrationInput) (protocol.AwaitMigrationResult, error) {
		awaited = append(awaited, input)
		return protocol.AwaitMigrationResult{}, activity.ErrResultPending
	}, activity.RegisterOptions{Name: protocol.AwaitMigrationActivity, DisableAlreadyRegisteredCheck: true})
	s.upgrade = func(context.Context, protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		return protocol.UpgradeBatchResult{}, activity.ErrResultPending
	}
	s.answers(withReserve(hotBatch("a"), "b"))
	s.env.RegisterDelayedCallback(func() {
		s.Require().Len(awaited, 1)
		s.True(awaited[0].Upgrading)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Minute)
	s.True(s.continued().Progress.Migrating)
}

func (s *rolloutSuite) TestANewerGenerationEndsTheResetInHand() {
	s.migrations(protocol.AwaitMigrationResult{Pods: []protocol.PodReference{pod("a")}, Pending: 1}, protocol.AwaitMigrationResult{Pending: 1})
	s.env.RegisterActivityWithOptions(func(context.Context, protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
		return protocol.ResetBatchResult{}, activity.ErrResultPending
	}, activity.RegisterOptions{Name: protocol.ResetBatchActivity, DisableAlreadyRegisteredCheck: true})
	s.answers(hotBatch("a"))
	s.waits()
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Minute)
	next := s.continued()
	s.Equal(int64(2), next.Generation)
	s.True(next.Progress.Migrating)
}
