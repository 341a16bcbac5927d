package workflows

import (
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/testsuite"

	"github.com/outrigger/outrigger/api/protocol"
)

// A permit wakes a run that waits for the permit, and the input of the next plan contains the permit.
func (s *rolloutSuite) TestSpec12_5_APermitBelongsToTheRun() {
	var memos []map[string]any
	s.env.OnUpsertMemo(mock.Anything).Run(func(args mock.Arguments) { memos = append(memos, args.Get(0).(map[string]any)) }).Return(nil)
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseFrozen, Message: "waits", FleetFault: "no answer"}, batch("a"), ends(protocol.PhaseComplete))
	s.env.RegisterDelayedCallback(func() { s.Equal("no answer", s.query().FleetFault) }, time.Second)
	permit := protocol.Permit{Hash: "h2", Stage: "canary", Attempt: 1}
	s.env.RegisterDelayedCallback(func() {
		s.env.UpdateWorkflow(protocol.PermitUpdate, "p", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { s.NoError(err) }, OnComplete: func(_ any, err error) { s.NoError(err) },
		}, permit)
	}, time.Minute)
	s.run()
	s.Nil(s.asked[0].Permit)
	s.Equal(&permit, s.asked[1].Permit)
	s.Equal(&permit, s.query().Permit)
	s.Empty(s.query().FleetFault, "the run does not wait for a permit")
	s.Equal([]map[string]any{{protocol.PermitMemo: permit}}, memos)
}

// Another generation may have other content, so the permit of the previous generation does not apply.
func (s *rolloutSuite) TestSpec12_5_AnotherGenerationHasNoPermit() {
	s.waits()
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.GenerationSignal, protocol.GenerationInput{Generation: 2})
	}, time.Minute)
	from := input(1)
	from.Progress.Permit = &protocol.Permit{Hash: "h1"}
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, from)
	next := continuedAs(s.T(), s.env.GetWorkflowError())
	s.EqualValues(2, next.Generation)
	s.Nil(next.Progress.Permit)
}

// A user can permit the content of a rollout only once. The fleet can still permit the same content later.
func (s *rolloutSuite) TestSpec12_6_AUserPermitsARollout() {
	s.env.OnUpsertMemo(mock.Anything).Return(nil)
	frozen := protocol.NextBatchResult{Phase: protocol.PhaseFrozen, Message: "waits"}
	s.answers(frozen, frozen, ends(protocol.PhaseComplete))
	answers := map[string]string{}
	send := func(after time.Duration, id string, permit protocol.Permit) {
		s.env.RegisterDelayedCallback(func() {
			s.env.UpdateWorkflow(protocol.PermitUpdate, id, &testsuite.TestUpdateCallback{
				OnAccept: func() {}, OnReject: func(err error) { answers[id] = err.Error() },
				OnComplete: func(_ any, err error) { s.NoError(err); answers[id] = "permitted" },
			}, permit)
		}, after)
	}
	user := protocol.Permit{Hash: "h2", By: "ann", Reason: "hotfix", NotAfter: s.env.Now().Add(150 * time.Second)}
	send(time.Minute, "first", user)
	send(2*time.Minute, "second", user)
	send(3*time.Minute, "late", protocol.Permit{Hash: "h3", By: "ann", NotAfter: user.NotAfter})
	s.env.RegisterDelayedCallback(func() {
		s.Equal(&protocol.Permit{Hash: "h2", By: "ann", Reason: "hotfix"}, s.query().Permit)
	}, 4*time.Minute)
	send(5*time.Minute, "fleet", protocol.Permit{Hash: "h2", Attempt: 1, Stage: "rest"})
	s.run()
	s.Equal("permitted", answers["first"])
	s.Equal("the rollout has a permit", answers["second"])
	s.Contains(answers["late"], "comes too late")
	s.Equal("permitted", answers["fleet"])
}
