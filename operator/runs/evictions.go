package runs

import (
	"context"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/outrigger/outrigger/api/protocol"
)

// Evictions starts the workflow that evicts the pods of a RolloutPolicy, unless the workflow is running.
// Evictions returns the newest view of the workflow, or nil if the workflow has no view yet. start names
// the policy, and is the input of a new workflow. Evictions wakes a running workflow if wakes returns true
// for the view of the workflow. Evictions pauses a running workflow again if the workflow has lost the pause
// of start.
func (c *Client) Evictions(ctx context.Context, start protocol.EvictionInput, wakes func(*protocol.EvictionView) bool) (*protocol.EvictionView, error) {
	if c.Unreachable() {
		// Without this check, the policies would wait one after another for the timeout of a call.
		return nil, fmt.Errorf("ask for the evictions of RolloutPolicy %s: Temporal does not respond", start.Policy.Name)
	}
	id := protocol.EvictionWorkflowID(start.Policy.Name, start.Policy.UID)
	run := &common.WorkflowExecution{WorkflowId: id}
	description, err := call(ctx, c.connection, "DescribeWorkflowExecution", c.client.WorkflowService().DescribeWorkflowExecution,
		&workflowservice.DescribeWorkflowExecutionRequest{Namespace: c.namespace, Execution: run})
	if err != nil && !is[*serviceerror.NotFound](err) {
		return nil, fmt.Errorf("ask for the evictions of RolloutPolicy %s: %w", start.Policy.Name, err)
	}
	info := description.GetWorkflowExecutionInfo()
	if info.GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, c.startEvictions(ctx, id, start)
	}
	var view *protocol.EvictionView
	if err := c.converter.FromPayload(info.GetMemo().GetFields()[protocol.EvictionMemo], &view); err != nil {
		return nil, fmt.Errorf("read the memo %s of workflow %s: %w", protocol.EvictionMemo, id, err)
	}
	if view != nil && view.HasLost(start.View.Pause) {
		pause, err := c.converter.ToPayloads(start.View.Pause)
		if err != nil {
			return nil, fmt.Errorf("encode the pause of workflow %s: %w", id, err)
		}
		if _, err := c.signal(ctx, run, protocol.PauseSignal, pause); err != nil {
			return nil, fmt.Errorf("pause the evictions of RolloutPolicy %s: %w", start.Policy.Name, err)
		}
	}
	if view != nil && wakes(view) {
		if _, err := c.signal(ctx, run, protocol.WakeSignal, nil); err != nil {
			return nil, fmt.Errorf("wake the evictions of RolloutPolicy %s: %w", start.Policy.Name, err)
		}
	}
	return view, nil
}

func (c *Client) startEvictions(ctx context.Context, id string, start protocol.EvictionInput) error {
	input, err := c.converter.ToPayloads(start)
	if err != nil {
		return fmt.Errorf("encode the input of workflow %s: %w", id, err)
	}
	summary, err := c.converter.ToPayload(protocol.Summary("evictions of RolloutPolicy " + start.Policy.Name))
	if err != nil {
		return fmt.Errorf("encode the summary of workflow %s: %w", id, err)
	}
	_, err = call(ctx, c.connection, "StartWorkflowExecution", c.client.WorkflowService().StartWorkflowExecution, &workflowservice.StartWorkflowExecutionRequest{
		Namespace: c.namespace, WorkflowId: id, WorkflowType: &common.WorkflowType{Name: protocol.EvictionWorkflow},
		TaskQueue: &taskqueue.TaskQueue{Name: c.taskQueue, Kind: enums.TASK_QUEUE_KIND_NORMAL},
		Input:     input, Identity: c.identity, RequestId: string(uuid.NewUUID()),
		WorkflowIdReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIdConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		UserMetadata:             &sdkpb.UserMetadata{Summary: summary},
	})
	if err != nil {
		return fmt.Errorf("start the evictions of RolloutPolicy %s: %w", start.Policy.Name, err)
	}
	return nil
}
