package workflows

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// gated adds the gate smoke to the first stage, and returns the list of measurements. The webhook of the gate
// returns the answers in order. An empty answer stands for a measurement that never ends.
func (s *fleetSuite) gated(answers ...protocol.GatePhase) *[]fleetEvent {
	measured := &[]fleetEvent{}
	s.plan.Spec.Gates = []outriggerv1.RolloutGate{{Name: "smoke", Webhook: &outriggerv1.WebhookGate{URL: "https://checks"}}}
	s.plan.Spec.Stages[0].Gates = []string{"smoke"}
	s.members("canary", 1)
	s.members("rest", 1)
	s.deliver(time.Second, "canary-000", "h1")
	s.env.RegisterActivityWithOptions(func(ctx context.Context, input protocol.FleetGateInput) (protocol.Measurement, error) {
		if wait := input.NotBefore.Sub(s.env.Now()); wait > 0 {
			return protocol.Measurement{}, temporal.NewApplicationErrorWithOptions("not due", protocol.GateNotDue, temporal.ApplicationErrorOptions{NextRetryDelay: wait})
		}
		*measured = append(*measured, fleetEvent{input.Gate.Name, activity.GetInfo(ctx).TaskQueue, s.env.Now().Sub(s.begin)})
		s.Require().NotEmpty(answers, "the gate measured more than it should")
		phase := answers[0]
		answers = answers[1:]
		if phase == "" {
			return protocol.Measurement{}, activity.ErrResultPending
		}
		return protocol.Measurement{Phase: phase}, nil
	}, activity.RegisterOptions{Name: protocol.FleetGateActivity})
	return measured
}

func (s *fleetSuite) TestSpec12_2_AStageEndsAfterItsGates() {
	measured := s.gated(protocol.GateRunning, protocol.GateSuccess)
	s.env.RegisterDelayedCallback(func() { s.Equal("stage canary waits for gate smoke", s.query().Message) }, time.Hour+time.Minute+15*time.Second)
	state := s.run(3 * time.Hour)
	s.Equal(protocol.FleetThrough, state.Phase)
	s.Require().Len(*measured, 2)
	s.GreaterOrEqual((*measured)[0].at, time.Hour)
	s.GreaterOrEqual((*measured)[1].at-(*measured)[0].at, 30*time.Second)
	s.NotContains((*measured)[0].cluster, "canary", "any member measures")
	s.GreaterOrEqual(s.events[1].at, (*measured)[1].at)
}

func (s *fleetSuite) TestSpec12_2_AFailedGateRollsTheStageBack() {
	s.plan.Spec.Failure.Action = outriggerv1.FleetRollbackStage
	s.gated(protocol.GateFailure)
	state := s.run(3 * time.Hour)
	s.Equal(protocol.FleetFailed, state.Phase)
	s.Equal("gate smoke of stage canary failed", state.Message)
	s.Equal([]string{"canary-000", "canary-000"}, s.clusters())
	s.Equal(1, s.count("rollback"))
}

func (s *fleetSuite) TestSpec12_2_ARetryAfterAnInconclusiveGateMeasuresAgain() {
	measured := s.gated(protocol.GateInconclusive, protocol.GateSuccess)
	s.env.RegisterDelayedCallback(func() { s.Equal(protocol.FleetPaused, s.query().Phase) }, 2*time.Hour)
	s.request(3*time.Hour, protocol.RetryUpdate, protocol.FleetStepRequest{})
	state := s.run(6 * time.Hour)
	s.Equal(protocol.FleetThrough, state.Phase)
	s.Require().Len(*measured, 2)
	s.GreaterOrEqual((*measured)[1].at, 4*time.Hour, "the stage bakes again")
}

// The first measurement never ends by itself.
func (s *fleetSuite) TestSpec12_2_RequestsEndAMeasurement() {
	s.gated("", protocol.GateSuccess)
	s.request(2*time.Hour, protocol.AbortUpdate, protocol.FleetStepRequest{Approval: protocol.Approval{By: "ann"}})
	s.env.RegisterDelayedCallback(func() { s.Equal(protocol.FleetRollingBack, s.query().Phase) }, 2*time.Hour+time.Second)
	s.request(3*time.Hour, protocol.RetryUpdate, protocol.FleetStepRequest{})
	s.Equal(protocol.FleetThrough, s.run(6*time.Hour).Phase)
}

func (s *fleetSuite) TestSpec12_2_OtherContentEndsAMeasurement() {
	s.gated("")
	s.report(2*time.Hour, "canary-000", "h2")
	s.run(3 * time.Hour)
	var next *workflow.ContinueAsNewError
	s.Require().ErrorAs(s.env.GetWorkflowError(), &next)
}

// A report does not wait for a measurement, and the measurement continues.
func (s *fleetSuite) TestSpec12_2_ReportsDoNotWaitForAMeasurement() {
	measured := s.gated("")
	s.report(2*time.Hour, "rest-000", "h1")
	state := s.run(3 * time.Hour)
	s.Equal(protocol.FleetRolling, state.Phase)
	s.Equal("stage canary waits for gate smoke", state.Message)
	s.Len(*measured, 1)
}

// An unavailable provider neither passes nor fails the gate, so the measurement is retried.
func (s *fleetSuite) TestSpec12_2_AnUnavailableProviderOfAFleetIsAskedAgain() {
	s.gated()
	attempts := 0
	s.env.OnActivity(protocol.FleetGateActivity, mock.Anything, mock.Anything).Return(func(context.Context, protocol.FleetGateInput) (protocol.Measurement, error) {
		if attempts++; attempts < 5 {
			return protocol.Measurement{}, errors.New("connection refused")
		}
		return protocol.Measurement{Phase: protocol.GateSuccess}, nil
	})
	s.Equal(protocol.FleetThrough, s.run(3*time.Hour).Phase)
	s.Equal(5, attempts)
}
