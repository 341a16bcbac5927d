package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/testsuite"

	"github.com/outrigger/outrigger/api/protocol"
)

// actionUpdate sends the update of a RolloutAction, and expects the result or the rejection want.
func (s *stageSuite) actionUpdate(after time.Duration, name, id string, payload any, want string) {
	s.env.RegisterDelayedCallback(func() {
		s.env.UpdateWorkflow(name, protocol.ActionUpdatePrefix+id, &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { s.Equal(want, err.Error()) },
			OnComplete: func(result any, err error) {
				s.Require().NoError(err)
				switch answer := result.(type) {
				case protocol.PauseResult:
					s.Equal(want, answer.Message)
				case protocol.StepResult:
					s.Equal(want, answer.Message)
				}
			},
		}, payload)
	}, after)
}

func (s *stageSuite) TestSpec11_13_ARunRemembersTheActionsOfTheRunThatItContinues() {
	s.actionUpdate(time.Minute, protocol.PauseUpdate, "a", protocol.Pause{By: "ann"}, "paused")
	s.actionUpdate(2*time.Minute, protocol.ResumeUpdate, "b", protocol.Pause{By: "ann"}, "resumed")
	s.actionUpdate(3*time.Minute, protocol.ApproveUpdate, "c", approval(0), "step 1 of 3 (canary) needs no approval")
	s.env.RegisterDelayedCallback(func() {
		s.env.SetContinueAsNewSuggested(true)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	}, 4*time.Minute)
	next := s.continued()
	s.Equal([]protocol.ActionAnswer{
		{UpdateID: "rolloutaction/a", Message: "paused"}, {UpdateID: "rolloutaction/b", Message: "resumed"},
		{UpdateID: "rolloutaction/c", Message: "step 1 of 3 (canary) needs no approval"},
	}, next.Progress.Actions)

	s.SetupTest()
	late := protocol.Pause{By: "ann", NotAfter: s.env.Now().Add(-time.Hour)}
	s.actionUpdate(time.Minute, protocol.PauseUpdate, "a", late, "paused")
	s.actionUpdate(time.Minute, protocol.ResumeUpdate, "b", late, "resumed")
	s.actionUpdate(time.Minute, protocol.ResumeUpdate, "d", protocol.Pause{By: "ann"}, protocol.NotPaused)
	s.env.RegisterDelayedCallback(func() {
		s.Nil(s.query().Pause, "the pause is not repeated")
	}, 2*time.Minute)
	s.actionUpdate(3*time.Minute, protocol.PromoteUpdate, "c", approval(0), "step 1 of 3 (canary) needs no approval")
	full := approval(0)
	full.Full = true
	s.actionUpdate(5*time.Minute, protocol.PromoteUpdate, "e", full, "all steps ended; the rollout upgrades all remaining pods")
	s.complete(next)
}

func (s *stageSuite) TestSpec11_13_ARunRemembersOnlyActionsAndALimitedNumberOfThem() {
	for i := range maxActions + 1 {
		s.actionUpdate(time.Minute, protocol.PauseUpdate, fmt.Sprint(i), protocol.Pause{By: "ann"}, "paused")
	}
	s.update(protocol.PauseUpdate, time.Minute, protocol.Pause{By: "ann"}, &protocol.PauseResult{Paused: true, Message: "paused"}, "")
	s.env.RegisterDelayedCallback(func() {
		s.env.SetContinueAsNewSuggested(true)
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	}, 4*time.Minute)
	next := s.continued()
	s.Len(next.Progress.Actions, maxActions)
	s.Equal("rolloutaction/1", next.Progress.Actions[0].UpdateID)
}
