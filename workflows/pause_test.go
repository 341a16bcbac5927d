package workflows

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"

	"github.com/outrigger/outrigger/api/protocol"
)

func (s *rolloutSuite) TestAPauseStopsBetweenBatchesAndAResumeContinues() {
	s.answers(batch("a"))
	s.waits()
	s.answers(batch("b"), ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann", Reason: "lunch"})
	}, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.Len(s.written, 1)
		status := s.query()
		s.Equal(protocol.PhasePaused, status.Phase)
		s.Equal("paused by signal from ann: lunch", status.Message)
		s.Equal(&protocol.Pause{By: "ann", Reason: "lunch"}, untimed(status.Pause))
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	}, 4*time.Minute)
	s.Equal(2, s.run().Upgraded)
	s.Nil(s.query().Pause)
}

func (s *rolloutSuite) TestTheMemoNamesTheUsersOfPauseAndResume() {
	begin := s.env.Now().UTC()
	var memos []map[string]any
	s.env.OnUpsertMemo(mock.Anything).Run(func(args mock.Arguments) { memos = append(memos, args.Get(0).(map[string]any)) }).Return(nil)
	s.waits()
	s.waits()
	s.answers(ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann", Reason: "lunch"}) }, time.Minute)
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "bob", Reason: "back"}) }, 2*time.Minute)
	s.update(protocol.PauseUpdate, 3*time.Minute, protocol.Pause{By: "eve"}, &protocol.PauseResult{Paused: true, Message: "paused"}, "")
	s.update(protocol.ResumeUpdate, 4*time.Minute, protocol.Pause{}, &protocol.PauseResult{Message: "resumed"}, "")
	s.run()
	s.Equal([]map[string]any{
		{protocol.PauseMemo: protocol.Pause{By: "ann", Reason: "lunch", At: begin.Add(time.Minute)}, protocol.ResumeMemo: nil},
		{protocol.PauseMemo: nil, protocol.ResumeMemo: protocol.Pause{By: "bob", Reason: "back"}},
		{protocol.PauseMemo: protocol.Pause{By: "eve", At: begin.Add(3 * time.Minute)}, protocol.ResumeMemo: nil},
		{protocol.PauseMemo: nil, protocol.ResumeMemo: protocol.Pause{}},
	}, memos)
}

// Users may send a text instead of an object, or no payload.
func (s *rolloutSuite) TestSpec7_1_APauseThatCannotBeReadPauses() {
	s.waits()
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.ResumeSignal, nil)
		s.env.SignalWorkflow(protocol.PauseSignal, "lunch")
	}, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.Equal(&protocol.Pause{Reason: "(a signal without name and reason)"}, untimed(s.query().Pause))
		s.answers(ends(protocol.PhaseComplete))
		s.env.SignalWorkflow(protocol.ResumeSignal, nil)
	}, 2*time.Minute)
	s.run()
}

func (s *rolloutSuite) TestPauseOutlivesANewGeneration() {
	s.waits()
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann"}) }, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, 4*time.Minute)
	next := s.continued()
	s.Equal(int64(2), next.Generation)
	s.Equal(&protocol.Pause{By: "ann"}, untimed(next.Pause))
}

func (s *rolloutSuite) TestSpecPauseWaitsForTheNextGenerationAndLooksRarely() {
	for range 24*time.Hour/checkInterval + 1 {
		s.answers(protocol.NextBatchResult{Phase: protocol.PhasePaused})
	}
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, 24*time.Hour+time.Minute)
	s.Equal(int64(2), s.continued().Generation)
	s.Empty(s.script)
}

func (s *rolloutSuite) TestSetThatIsDeletedWhileItIsPausedEndsItsRun() {
	s.answers(protocol.NextBatchResult{Phase: protocol.PhasePaused}, ends(protocol.PhaseDeleted))
	s.wakesAfter(time.Minute)
	s.Equal(protocol.PhaseDeleted, s.run().Phase)
}

func (s *rolloutSuite) TestDeletionOfAPausedSetEndsItsRun() {
	s.waits()
	s.answers(protocol.NextBatchResult{Phase: protocol.PhasePaused}, ends(protocol.PhaseDeleted))
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann"}) }, time.Minute)
	s.wakesAfter(2 * time.Minute)
	s.wakesAfter(3 * time.Minute)
	s.Equal(protocol.PhaseDeleted, s.run().Phase)
	s.True(s.asked[1].Paused)
}

func (s *rolloutSuite) TestPauseThatArrivesWhileTheRunContinuesAsNewIsKept() {
	s.migrations(protocol.AwaitMigrationResult{Pods: []protocol.PodReference{pod("a")}, Pending: 1}, protocol.AwaitMigrationResult{})
	// The run waits for the end of the reset batch before the run continues as new.
	s.env.RegisterActivityWithOptions(func(context.Context, protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
		return protocol.ResetBatchResult{}, activity.ErrResultPending
	}, activity.RegisterOptions{Name: protocol.ResetBatchActivity, DisableAlreadyRegisteredCheck: true})
	s.answers(hotBatch("a"))
	s.waits()
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
		s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann"})
	}, time.Minute)
	next := s.continued()
	s.Equal(int64(2), next.Generation)
	s.Equal(&protocol.Pause{By: "ann"}, untimed(next.Pause))
}

// Temporal accepts a signal with a reason of any length, but the API server rejects a condition with a long
// message.
func (s *rolloutSuite) TestSpec7_1_ALongReasonOfASignalIsShortened() {
	s.waits()
	s.answers(ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann", Reason: strings.Repeat("é", 40_000)})
	}, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		reason := s.query().Pause.Reason
		s.LessOrEqual(len(reason), protocol.MaxPauseText)
		s.True(utf8.ValidString(reason) && strings.HasSuffix(reason, "é…"))
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{})
	}, 2*time.Minute)
	s.run()
}

func (s *rolloutSuite) TestUpdatesPauseAndResumeAndAreAnswered() {
	s.waits()
	s.answers(ends(protocol.PhaseComplete))
	s.update(protocol.ResumeUpdate, time.Second, protocol.Pause{By: "ann"}, nil, "the run is not paused")
	s.update(protocol.PauseUpdate, time.Minute, protocol.Pause{By: "ann", Reason: "lunch"}, &protocol.PauseResult{Paused: true, Message: "paused"}, "")
	s.update(protocol.PauseUpdate, 2*time.Minute, protocol.Pause{By: strings.Repeat("a", protocol.MaxPauseText+1)}, nil, "1024 bytes")
	s.env.RegisterDelayedCallback(func() {
		s.Equal(&protocol.Pause{By: "ann", Reason: "lunch"}, untimed(s.query().Pause))
		s.Equal(protocol.PhasePaused, s.query().Phase)
	}, 3*time.Minute)
	s.update(protocol.ResumeUpdate, 4*time.Minute, protocol.Pause{By: "bob"}, &protocol.PauseResult{Message: "resumed"}, "")
	s.run()
}

func (s *rolloutSuite) TestSpec7_1_AnUpdateAboutASignalOnlyAnswers() {
	s.waits()
	s.waits()
	s.answers(ends(protocol.PhaseComplete))
	send := func(name string, after time.Duration, who string) {
		s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(name, protocol.Pause{By: who}) }, after)
	}
	send(protocol.PauseSignal, time.Minute, "ann")
	s.update(protocol.PauseUpdate, time.Minute+time.Second, protocol.Pause{By: "ann", Sent: true}, &protocol.PauseResult{Paused: true, Message: "paused"}, "")
	s.update(protocol.ResumeUpdate, 2*time.Minute, protocol.Pause{By: "bob", Sent: true}, &protocol.PauseResult{Paused: true, Message: "paused"}, "")
	s.env.RegisterDelayedCallback(func() { s.Equal(&protocol.Pause{By: "ann"}, untimed(s.query().Pause)) }, 3*time.Minute)
	send(protocol.ResumeSignal, 4*time.Minute, "bob")
	s.update(protocol.PauseUpdate, 4*time.Minute+time.Second, protocol.Pause{By: "ann", Sent: true}, &protocol.PauseResult{Message: "resumed"}, "")
	s.update(protocol.ResumeUpdate, 4*time.Minute+time.Second, protocol.Pause{By: "bob", Sent: true}, &protocol.PauseResult{Message: "resumed"}, "")
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1}) }, 5*time.Minute)
	s.run()
}

func (s *rolloutSuite) TestSpec7_1_AResumeOfARunThatIsNotPausedReturnsAnError() {
	s.waits()
	s.waits()
	s.answers(ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "bob"})
		s.env.UpdateWorkflow(protocol.ResumeUpdate, "resume", &testsuite.TestUpdateCallback{
			OnAccept:   func() {},
			OnReject:   func(err error) { s.NoError(err) },
			OnComplete: func(_ any, err error) { s.ErrorContains(err, "the run is not paused") },
		}, protocol.Pause{By: "bob", Sent: true})
	}, time.Minute)
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1}) }, 5*time.Minute)
	s.run()
}

// update sends an update, and expects the result answer, or a rejection that contains the text rejection.
func (s *simulation) update(name string, after time.Duration, pause protocol.Pause, answer *protocol.PauseResult, rejection string) {
	s.env.RegisterDelayedCallback(func() {
		s.env.UpdateWorkflow(name, fmt.Sprint(name, after), &testsuite.TestUpdateCallback{
			OnAccept: func() { s.Empty(rejection) },
			OnReject: func(err error) { s.ErrorContains(err, rejection) },
			OnComplete: func(result any, err error) {
				s.Require().NoError(err)
				s.Equal(*answer, result)
			},
		}, pause)
	}, after)
}
