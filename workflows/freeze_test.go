package workflows

import (
	"context"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
)

func frozen(until *time.Time) protocol.NextBatchResult {
	return protocol.NextBatchResult{Phase: protocol.PhaseFrozen, Message: "frozen by RolloutFreeze friday", FrozenUntil: until}
}

func (s *rolloutSuite) TestSpec11_7_AFrozenRunContinuesOnceTheFreezeIsOver() {
	begin := s.env.Now()
	until := begin.Add(90 * time.Second)
	var planned []time.Duration
	record := func(result protocol.NextBatchResult) {
		s.script = append(s.script, func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) {
			planned = append(planned, s.env.Now().Sub(begin))
			return result, nil
		})
	}
	record(frozen(&until))
	record(frozen(&until)) // the clock of the worker is slow
	record(batch("a"))
	record(frozen(nil))
	record(batch("b"))
	record(ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() {
		status := s.query()
		s.Equal(protocol.PhaseFrozen, status.Phase)
		s.Equal("frozen by RolloutFreeze friday", status.Message)
		s.Zero(status.Upgraded)
	}, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.Equal(protocol.PhaseFrozen, s.query().Phase)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	}, 3*time.Minute)
	result := s.run()
	s.Equal(2, result.Upgraded)
	s.GreaterOrEqual(planned[1], 90*time.Second, "the first plan at the end of the freeze")
	s.GreaterOrEqual(planned[2], planned[1]+minFrozenWait)
	s.Less(planned[2], 95*time.Second)
	s.GreaterOrEqual(planned[4], 3*time.Minute, "a freeze without an end ends with a signal")
	s.Less(planned[4], 3*time.Minute+time.Second)
}

func (s *rolloutSuite) TestSpec11_7_AFrozenRunChecksTheClusterWithoutASignal() {
	begin, until := s.env.Now(), s.env.Now().Add(1000*time.Hour)
	s.answers(frozen(nil), frozen(&until), ends(protocol.PhaseComplete))
	s.run()
	s.GreaterOrEqual(s.env.Now().Sub(begin), 2*checkInterval)
	s.Less(s.env.Now().Sub(begin), 2*checkInterval+time.Minute)
}

// A pod that fails during a freeze starts a rollback or pauses the rollout, so the run must plan during the
// freeze.
func (s *rolloutSuite) TestSpec11_6_AFrozenRunPlansAgainOnceAPodMayHaveFailed() {
	begin := s.env.Now()
	unhealthy := frozen(nil)
	unhealthy.Again = 40 * time.Second
	s.answers(unhealthy, ends(protocol.PhaseComplete))
	s.run()
	s.Less(s.env.Now().Sub(begin), time.Minute)
}

// The worker of the next plan may not observe the freeze yet, so the plan may contain pods.
func (s *rolloutSuite) TestSpec11_7_ABatchThatAFreezeStoppedIsNotRepeatedAtOnce() {
	begin := s.env.Now()
	var at []time.Duration
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		at = append(at, s.env.Now().Sub(begin))
		if len(at) == 3 {
			return written(input.Pods), nil
		}
		return protocol.UpgradeBatchResult{Skipped: 1, Stopped: "frozen by RolloutFreeze friday", Frozen: true}, nil
	}
	s.answers(batch("a"), batch("a"), batch("a"), ends(protocol.PhaseComplete))
	s.run()
	s.GreaterOrEqual(at[1]-at[0], skippedPause)
	s.GreaterOrEqual(at[2]-at[1], skippedPause)
}

func (s *rolloutSuite) TestSpec11_7_AFreezeDoesNotDelayResets() {
	resets := s.migrations(protocol.AwaitMigrationResult{Pods: []protocol.PodReference{pod("a")}, Pending: 1}, protocol.AwaitMigrationResult{})
	plan := frozen(nil)
	plan.Counts.Migrating = 1
	s.answers(plan, ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() { s.Len(*resets, 1) }, time.Minute)
	s.run()
}
