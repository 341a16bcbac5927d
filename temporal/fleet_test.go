package temporal

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/failure/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/mocks"

	"github.com/outrigger/outrigger/api/protocol"
)

// state is the result of a query.
type state protocol.FleetState

func (s state) HasValue() bool { return true }

func (s state) Get(into any) error {
	*into.(*protocol.FleetState) = protocol.FleetState(s) //nolint:errcheck // readFleet passes a FleetState
	return nil
}

// fleetOf returns a client of a fleet with a rollout of each SidecarSet in sets. The rollouts of the
// SidecarSets in unreadable cannot be queried.
func fleetOf(sets []string, unreadable ...string) *mocks.Client {
	c := &mocks.Client{}
	answer := &workflowservice.ListWorkflowExecutionsResponse{}
	for _, set := range sets {
		answer.Executions = append(answer.Executions, &workflow.WorkflowExecutionInfo{Execution: &common.WorkflowExecution{WorkflowId: protocol.FleetWorkflowID(set)}})
	}
	c.On("ListWorkflow", mock.Anything, mock.Anything).Return(answer, nil)
	for _, set := range unreadable {
		c.On("QueryWorkflow", mock.Anything, protocol.FleetWorkflowID(set), "", protocol.StatusQuery).Return(nil, errors.New("no worker polls"))
	}
	c.On("QueryWorkflow", mock.Anything, mock.Anything, "", protocol.StatusQuery).Return(
		func(_ context.Context, id, _, _ string, _ ...any) (converter.EncodedValue, error) {
			return state{Set: protocol.FleetSet(id), Phase: protocol.FleetPaused}, nil
		})
	return c
}

func TestOneUnreadableRolloutOfTheFleetHidesNoOther(t *testing.T) {
	states, err := FleetRollouts(t.Context(), fleetOf([]string{"envoy", "logs", "agent"}, "envoy"))
	require.NoError(t, err)
	assert.Equal(t, []protocol.FleetState{
		{Set: "agent", Phase: protocol.FleetPaused},
		{Set: "envoy", Message: "the rollout cannot be read: read workflow fleet/envoy: no worker polls"},
		{Set: "logs", Phase: protocol.FleetPaused},
	}, states)

	_, err = FleetRollouts(t.Context(), fleetOf([]string{"envoy", "logs"}, "envoy", "logs"))
	require.EqualError(t, err, "read workflow fleet/envoy: no worker polls")
	states, err = FleetRollouts(t.Context(), fleetOf(nil))
	require.NoError(t, err)
	assert.Empty(t, states)
}

func TestSpec12_8_StatusNamesTheCauseOfARetriedActivity(t *testing.T) {
	failed := func(activity, kind string) *workflow.PendingActivityInfo {
		return &workflow.PendingActivityInfo{ActivityType: &common.ActivityType{Name: activity}, LastFailure: &failure.Failure{
			Message:     "no answer",
			FailureInfo: &failure.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failure.ApplicationFailureInfo{Type: kind}},
		}}
	}
	assert.Equal(t, "the measurement failed, and is retried: no answer", retriedFault(failed(protocol.FleetGateActivity, "")))
	assert.Equal(t, "the policy and the members cannot be read, and the read is retried: no answer", retriedFault(failed(protocol.FleetPlanActivity, "")))
	assert.Empty(t, retriedFault(failed(protocol.FleetGateActivity, protocol.GateNotDue)))
	assert.Empty(t, retriedFault(failed("other", "")))
	assert.Empty(t, retriedFault(&workflow.PendingActivityInfo{ActivityType: &common.ActivityType{Name: protocol.FleetPlanActivity}}))
}
