package runs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/outrigger/outrigger/api/protocol"
)

// describing returns a fixed description of each run.
type describing struct {
	workflowservice.UnimplementedWorkflowServiceServer
	description *workflowservice.DescribeWorkflowExecutionResponse
}

func (d *describing) DescribeWorkflowExecution(context.Context, *workflowservice.DescribeWorkflowExecutionRequest) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return d.description, nil
}

func TestSpec13_5_TheFaultOfARunOfEvictionsIsKnown(t *testing.T) {
	failing := "activity NextBatch fails repeatedly: no (it is retried; see the logs of the workers)"
	memo, err := converter.GetDefaultDataConverter().ToPayload(protocol.EvictionView{Message: "5 pods have to be recreated"})
	require.NoError(t, err)
	frontend, clock := &describing{}, clocktesting.NewFakeClock(time.Unix(1000, 0))
	c := newClientOf(t, frontend, clock)
	for _, step := range []struct {
		name     string
		activity *workflow.PendingActivityInfo
		task     *workflow.PendingWorkflowTaskInfo
		viewed   bool
		want     string
	}{
		{"a first attempt", pending(started, 1, false), nil, false, ""},
		{"an activity that fails", pending(scheduled, 3, true), nil, false, failing},
		{"an attempt in progress", pending(started, 4, false), nil, true, failing},
		{"an activity that is paused", pending(enums.PENDING_ACTIVITY_STATE_PAUSED, 1, false), nil, true,
			"activity NextBatch is paused in Temporal (unpause it: temporal activity unpause -n sidecars -w eviction/edge/p1 --activity-id 1)"},
		{"the next activity", pending(started, 1, false), nil, true, ""},
		{"a workflow task that fails", nil, &workflow.PendingWorkflowTaskInfo{Attempt: 3}, true,
			"the workflow task of the run fails repeatedly (it is retried; see the logs of the workers)"},
	} {
		info := &workflow.WorkflowExecutionInfo{Status: opened}
		if step.viewed {
			info.Memo = &common.Memo{Fields: map[string]*common.Payload{protocol.EvictionMemo: memo}}
		}
		frontend.description = &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: info, PendingWorkflowTask: step.task}
		if step.activity != nil {
			frontend.description.PendingActivities = []*workflow.PendingActivityInfo{step.activity}
		}
		start := protocol.EvictionInput{Policy: protocol.PolicyReference{Name: "edge", UID: "p1"}}
		view, fault, err := c.Evictions(t.Context(), start, func(*protocol.EvictionView) bool { return false })
		require.NoError(t, err, step.name)
		assert.Equal(t, step.viewed, view != nil, step.name)
		assert.Equal(t, step.want, fault, step.name)
	}

	clock.Step(diagnosisTTL + time.Second)
	_, _, err = c.Evictions(t.Context(), protocol.EvictionInput{Policy: protocol.PolicyReference{Name: "other"}}, func(*protocol.EvictionView) bool { return false })
	require.NoError(t, err)
	assert.Len(t, c.evictions, 1, "the diagnosis of a deleted policy is dropped")
}

// signalled records the signals by their request ids, because Temporal drops a signal with a known request id.
type signalled struct {
	describing
	requests map[string]string
}

func (s *signalled) SignalWorkflowExecution(_ context.Context, r *workflowservice.SignalWorkflowExecutionRequest) (*workflowservice.SignalWorkflowExecutionResponse, error) {
	s.requests[r.RequestId] = r.SignalName
	return &workflowservice.SignalWorkflowExecutionResponse{}, nil
}

// The run may write the memo late, so the operator may detect the lost pause several times. A second signal
// would revert a resume that arrives in the meantime.
func TestSpec13_5_ALostPauseIsSentOnce(t *testing.T) {
	began := time.Unix(1000, 0)
	memo, err := converter.GetDefaultDataConverter().ToPayload(protocol.EvictionView{PauseChanged: began.Add(-time.Hour)})
	require.NoError(t, err)
	frontend := &signalled{requests: map[string]string{}}
	frontend.description = &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{
		Status: opened, Memo: &common.Memo{Fields: map[string]*common.Payload{protocol.EvictionMemo: memo}},
	}}
	c := newClientOf(t, frontend, clocktesting.NewFakeClock(began))
	start := protocol.EvictionInput{Policy: protocol.PolicyReference{Name: "edge", UID: "p1"}, View: protocol.EvictionView{Pause: &protocol.Pause{By: "ann", At: began}}}
	for range 3 {
		_, _, err := c.Evictions(t.Context(), start, func(*protocol.EvictionView) bool { return false })
		require.NoError(t, err)
	}
	assert.Equal(t, map[string]string{"pause/1000": protocol.PauseSignal}, frontend.requests)
}
