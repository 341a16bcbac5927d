package worker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/workflows"
)

// The test runs 500 virtual members with a real Temporal server. Each member polls a separate task queue, and
// reports content.
func TestSpec12_2_AFleetOf500MembersKeepsItsHistoryShort(t *testing.T) {
	const members = 500
	server := startTemporal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c := server.Client()
	plan := protocol.FleetPlan{Policy: "edge", Spec: outriggerv1.FleetPolicySpec{Stages: []outriggerv1.FleetStage{
		{Name: "canary", Clusters: outriggerv1.FleetClusters{MatchLabels: map[string]string{"stage": "canary"}}},
		{Name: "rest", MaxConcurrentClusters: new(intstr.FromString("10%"))},
	}}}
	for i := range members {
		name := fmt.Sprintf("c%03d", i)
		plan.Members = append(plan.Members, protocol.FleetMember{UID: name, Name: name, Labels: map[string]string{"stage": map[bool]string{true: "canary"}[i == 0]}})
	}
	deciding := sdk.New(c, protocol.FleetTaskQueue, sdk.Options{})
	deciding.RegisterWorkflowWithOptions(workflows.Fleet, workflow.RegisterOptions{Name: protocol.FleetWorkflow})
	deciding.RegisterActivityWithOptions(func(context.Context, string) (protocol.FleetPlan, error) { return plan, nil }, activity.RegisterOptions{Name: protocol.FleetPlanActivity})
	require.NoError(t, deciding.Start())
	t.Cleanup(deciding.Stop)
	for _, member := range plan.Members {
		virtual := sdk.New(c, protocol.FleetMemberTaskQueue(member.UID), sdk.Options{
			DisableWorkflowWorker: true, MaxConcurrentActivityTaskPollers: 1, MaxConcurrentActivityExecutionSize: 1,
		})
		virtual.RegisterActivityWithOptions(func(context.Context, protocol.FleetRolloutInput) (protocol.FleetResult, error) {
			return protocol.FleetResult{State: protocol.ClusterCompleted}, nil
		}, activity.RegisterOptions{Name: protocol.FleetRolloutActivity})
		require.NoError(t, virtual.Start())
		t.Cleanup(virtual.Stop)
	}
	id := protocol.FleetWorkflowID("envoy")
	report := func(member protocol.FleetMember) error {
		_, err := c.SignalWithStartWorkflow(ctx, id, protocol.ContentSignal, protocol.FleetContent{Member: member.UID, Hash: "h1"},
			client.StartWorkflowOptions{ID: id, TaskQueue: protocol.FleetTaskQueue}, protocol.FleetWorkflow, protocol.FleetState{Set: "envoy", Phase: protocol.FleetRolling})
		return err
	}
	// The services of a new server load the namespace at different times, so the first reports may fail.
	require.EventuallyWithT(t, func(t *assert.CollectT) { require.NoError(t, report(plan.Members[0])) }, time.Minute, 100*time.Millisecond)
	for _, member := range plan.Members[1:] {
		require.NoError(t, report(member))
	}
	var state protocol.FleetState
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		answer, err := c.QueryWorkflow(ctx, id, "", protocol.StatusQuery)
		require.NoError(t, err)
		require.NoError(t, answer.Get(&state))
		completed := 0
		for _, cluster := range state.Clusters {
			if cluster.State == protocol.ClusterCompleted {
				completed++
			}
		}
		assert.Equal(t, members, completed)
		assert.Equal(t, protocol.FleetThrough, state.Phase)
	}, 10*time.Minute, 500*time.Millisecond)
	described, err := c.DescribeWorkflow(ctx, id, "")
	require.NoError(t, err)
	assert.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, described.Status)
	assert.Less(t, described.HistoryLength, 10_000)
	t.Logf("%d events", described.HistoryLength)

	var recorded history.History
	for events := c.GetWorkflowHistory(ctx, id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		require.NoError(t, err)
		recorded.Events = append(recorded.Events, event)
	}
	// On a busy machine, the replay may stall for more than a second. The SDK would report the stall as a
	// deadlock.
	replayer, err := sdk.NewWorkflowReplayerWithOptions(sdk.WorkflowReplayerOptions{DisableDeadlockDetection: true})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(workflows.Fleet, workflow.RegisterOptions{Name: protocol.FleetWorkflow})
	require.NoError(t, replayer.ReplayWorkflowHistory(nil, &recorded))
}
