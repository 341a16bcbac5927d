package workflows

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/outrigger/outrigger/api/protocol"
)

// migrations simulates migrating pods: the activity AwaitMigration returns the answers in order. migrations
// returns the inputs of the reset batches.
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
	s.NotEmpty((*resets)[0].Run, "the Lease names the run")
}

func (s *rolloutSuite) TestSpec7_1_PauseDoesNotDelayResets() {
	resets := s.migrations(protocol.AwaitMigrationResult{Pods: []protocol.PodReference{pod("a")}, Pending: 1}, protocol.AwaitMigrationResult{})
	paused := protocol.NextBatchResult{Phase: protocol.PhasePaused}
	paused.Counts.Migrating = 1
	s.answers(paused)
	s.env.RegisterDelayedCallback(func() {
		s.Len(*resets, 1)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Minute)
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

func (s *rolloutSuite) TestRejectedResetsRestAndAreTriedAgain() {
	pods := []protocol.PodReference{pod("a")}
	s.migrations(protocol.AwaitMigrationResult{Pods: pods, Pending: 1}, protocol.AwaitMigrationResult{Pods: pods, Pending: 1}, protocol.AwaitMigrationResult{})
	tries := 0
	s.env.RegisterActivityWithOptions(func(context.Context, protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
		tries++
		if tries == 1 {
			return protocol.ResetBatchResult{Rejected: []protocol.RejectedPod{{PodReference: pod("a"), Reason: "Forbidden"}}}, nil
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

// A pod whose reset is always rejected must not delay the resets of pods that migrate later.
func (s *rolloutSuite) TestSpec7_8_ARestAfterRejectedResetsEndsWhenTheRunIsWoken() {
	rejected, migrated := []protocol.PodReference{pod("rejected")}, []protocol.PodReference{pod("migrated")}
	const rejections = 8
	var answers []protocol.AwaitMigrationResult
	for range rejections {
		answers = append(answers, protocol.AwaitMigrationResult{Pods: rejected, Pending: 2})
	}
	s.migrations(append(answers, protocol.AwaitMigrationResult{Pods: migrated, Pending: 2}, protocol.AwaitMigrationResult{})...)
	var resets []string
	s.env.RegisterActivityWithOptions(func(_ context.Context, input protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
		resets = append(resets, input.Pods[0].Name)
		if input.Pods[0] == rejected[0] {
			return protocol.ResetBatchResult{Rejected: []protocol.RejectedPod{{PodReference: rejected[0], Reason: "Forbidden"}}}, nil
		}
		return protocol.ResetBatchResult{Reset: 1}, nil
	}, activity.RegisterOptions{Name: protocol.ResetBatchActivity, DisableAlreadyRegisteredCheck: true})
	waiting := protocol.NextBatchResult{Phase: protocol.PhaseWaiting}
	migrating := waiting
	migrating.Counts.Migrating = 2
	// The first signal requests the second plan, and the second signal requests the last plan.
	s.answers(migrating, waiting, ends(protocol.PhaseComplete))
	// The backoff after the last rejection lasts from second 254 to second 510.
	woken := 280 * time.Second
	s.env.RegisterDelayedCallback(func() {
		s.Len(resets, rejections)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	}, woken)
	s.env.RegisterDelayedCallback(func() {
		s.Contains(resets, migrated[0].Name)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	}, woken+time.Second)
	s.run()
}

// The cache of the worker that claims ResetBatch may be older than the cache of the worker that executed
// AwaitMigration.
func (s *rolloutSuite) TestResetsThatFoundNothingAreTriedAgainSoon() {
	pods := []protocol.PodReference{pod("a")}
	const behind = 6
	var answers []protocol.AwaitMigrationResult
	for range behind + 1 {
		answers = append(answers, protocol.AwaitMigrationResult{Pods: pods, Pending: 1})
	}
	s.migrations(append(answers, protocol.AwaitMigrationResult{})...)
	tries := 0
	s.env.RegisterActivityWithOptions(func(context.Context, protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
		if tries++; tries <= behind {
			return protocol.ResetBatchResult{Skipped: 1}, nil
		}
		return protocol.ResetBatchResult{Reset: 1}, nil
	}, activity.RegisterOptions{Name: protocol.ResetBatchActivity, DisableAlreadyRegisteredCheck: true})
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseWaiting, Counts: protocol.Counts{Migrating: 1}}, ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() {
		s.Equal(behind+1, tries)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	}, behind*skippedPause+time.Second)
	s.run()
}

// While other pods are being upgraded for minutes, the operator does not wake the run.
func (s *rolloutSuite) TestAPlanWithMigratedPodsWakesTheMigration() {
	resets := s.migrations(
		protocol.AwaitMigrationResult{Pending: 1},
		protocol.AwaitMigrationResult{Pods: []protocol.PodReference{pod("a")}, Pending: 1},
		protocol.AwaitMigrationResult{},
	)
	migrating := protocol.NextBatchResult{Phase: protocol.PhaseProgressing, Counts: protocol.Counts{Migrating: 1}}
	// Until the migration sleeps, no pod can be reset.
	var plan func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error)
	plan = func(_ context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		result := migrating
		if input.MigrationIdle {
			result.Counts.Migrated = 1
			s.waits()
			s.answers(ends(protocol.PhaseComplete))
		} else {
			s.script = append(s.script, plan)
		}
		return result, nil
	}
	s.answers(migrating)
	s.script = append(s.script, plan)
	s.env.RegisterDelayedCallback(func() {
		s.Len(*resets, 1)
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
	s.Empty(s.asked[1].RejectedConditions.Pods)
}

func (s *rolloutSuite) TestSpec7_2_ARejectedConditionKeepsNoOtherFromBeingWritten() {
	s.env.RegisterActivityWithOptions(func(_ context.Context, input protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error) {
		return protocol.WriteUpgradableConditionsResult{Rejected: []protocol.RejectedPod{{PodReference: input.Pods[0], Reason: "Forbidden"}}}, nil
	}, activity.RegisterOptions{Name: protocol.WriteUpgradableConditionsActivity})
	due := func(name string) protocol.NextBatchResult {
		return protocol.NextBatchResult{Phase: protocol.PhaseProgressing, FalseConditions: []protocol.PodReference{pod(name)}}
	}
	s.answers(due("a"), due("b"), protocol.NextBatchResult{Phase: protocol.PhaseWaiting}, ends(protocol.PhaseComplete))
	s.run()
	s.Equal(protocol.Rejected{Pods: prints(pod("a"))}, s.asked[1].RejectedConditions)
	s.Equal(protocol.Rejected{Pods: prints(pod("a"), pod("b"))}, s.asked[2].RejectedConditions)
	s.Equal(2, s.asked[3].RejectedConditions.Again, "later they are tried again")
}

// If the pod is deleted, or the condition of the pod is already correct, the pod must leave the list of
// rejected pods.
func (s *rolloutSuite) TestSpec7_2_ARejectedConditionThatIsNotDueAnyMoreIsForgotten() {
	s.env.RegisterActivityWithOptions(func(_ context.Context, input protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error) {
		return protocol.WriteUpgradableConditionsResult{Rejected: []protocol.RejectedPod{{PodReference: input.Pods[0], Reason: "Forbidden"}}}, nil
	}, activity.RegisterOptions{Name: protocol.WriteUpgradableConditionsActivity})
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseProgressing, FalseConditions: []protocol.PodReference{pod("a")}},
		protocol.NextBatchResult{Phase: protocol.PhaseWaiting, GoneConditions: prints(pod("a"))}, ends(protocol.PhaseComplete))
	s.run()
	s.Equal(protocol.Rejected{Pods: prints(pod("a"))}, s.asked[1].RejectedConditions)
	s.Empty(s.asked[2].RejectedConditions.Pods)
}

func (s *rolloutSuite) TestSpec7_7_MigrationBeginsBesideARunningBatch() {
	var awaited []protocol.AwaitMigrationInput
	s.migrations()
	s.env.RegisterActivityWithOptions(func(_ context.Context, input protocol.AwaitMigrationInput) (protocol.AwaitMigrationResult, error) {
		awaited = append(awaited, input)
		return protocol.AwaitMigrationResult{}, activity.ErrResultPending
	}, activity.RegisterOptions{Name: protocol.AwaitMigrationActivity, DisableAlreadyRegisteredCheck: true})
	s.upgrade = func(context.Context, protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		return protocol.UpgradeBatchResult{}, activity.ErrResultPending
	}
	s.answers(withQueued(hotBatch("a"), "b"))
	s.env.RegisterDelayedCallback(func() {
		s.Require().Len(awaited, 1)
		s.True(awaited[0].Upgrading)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Minute)
	s.True(s.continued().Progress.Migrating)
}

func (s *rolloutSuite) TestANewerGenerationEndsTheResetInProgress() {
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

// While the run waits to continue as new, an activity writes conditions, and another pod migrates.
func (s *rolloutSuite) TestSpec7_7_NoResetBatchOutlivesItsRun() {
	var awaiting, marking []byte
	ended := 0
	s.env.SetOnActivityCanceledListener(func(info *activity.Info) {
		if info.ActivityType.Name == protocol.ResetBatchActivity {
			ended++
		}
	})
	s.env.RegisterActivityWithOptions(func(ctx context.Context, _ protocol.AwaitMigrationInput) (protocol.AwaitMigrationResult, error) {
		awaiting = activity.GetInfo(ctx).TaskToken
		return protocol.AwaitMigrationResult{}, activity.ErrResultPending
	}, activity.RegisterOptions{Name: protocol.AwaitMigrationActivity})
	s.env.RegisterActivityWithOptions(func(context.Context, protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
		return protocol.ResetBatchResult{}, activity.ErrResultPending
	}, activity.RegisterOptions{Name: protocol.ResetBatchActivity})
	s.env.RegisterActivityWithOptions(func(ctx context.Context, _ protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error) {
		marking = activity.GetInfo(ctx).TaskToken
		return protocol.WriteUpgradableConditionsResult{}, activity.ErrResultPending
	}, activity.RegisterOptions{Name: protocol.WriteUpgradableConditionsActivity})
	s.answers(hotBatch("a"), protocol.NextBatchResult{Phase: protocol.PhaseWaiting, TrueConditions: []protocol.PodReference{pod("a")}})
	s.waits()
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.NoError(s.env.CompleteActivity(awaiting, protocol.AwaitMigrationResult{Pods: []protocol.PodReference{pod("a")}, Pending: 1}, nil))
	}, 2*time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.NoError(s.env.CompleteActivity(marking, protocol.WriteUpgradableConditionsResult{}, nil))
	}, 3*time.Minute)
	s.True(s.continued().Progress.Migrating)
	s.Equal(1, ended)
}
