package workflows

import (
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/testsuite"

	"github.com/outrigger/outrigger/api/protocol"
)

// A permit wakes a run that waits for it, and the next plan has the permit.
func (s *rolloutSuite) TestSpec12_5_APermitBelongsToTheRun() {
	var memos []map[string]any
	s.env.OnUpsertMemo(mock.Anything).Run(func(args mock.Arguments) { memos = append(memos, args.Get(0).(map[string]any)) }).Return(nil)
	s.answers(protocol.NextBatchResult{Phase: protocol.PhaseFrozen, Message: "waits"}, batch("a"), ends(protocol.PhaseComplete))
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
	s.Equal([]map[string]any{{protocol.PermitMemo: permit}}, memos)
}

// Another generation may have other content.
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
