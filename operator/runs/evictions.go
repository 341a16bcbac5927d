package runs

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/outrigger/outrigger/api/protocol"
)

// diagnosisTTL is the time after which the diagnosis of a run of evictions is dropped if the operator does not
// read the run, for example because the policy was deleted.
const diagnosisTTL = time.Hour

// diagnosis is the last known fault of a run of evictions. at is the time of the last read of the run.
type diagnosis struct {
	tasks TaskAges
	fault Fault
	at    time.Time
}

// Evictions starts the workflow that evicts the pods of a RolloutPolicy, unless the workflow is running.
// Evictions returns the newest view of the workflow, or nil if the workflow has no view yet. fault is the
// message of the fault that stops the workflow, or "". start names the policy, and is the input of a new
// workflow. Evictions wakes a running workflow if wakes returns true for the view of the workflow. Evictions
// pauses a running workflow again if the workflow has lost the pause of start.
//
// Only one goroutine may call Evictions at a time.
func (c *Client) Evictions(ctx context.Context, start protocol.EvictionInput, wakes func(*protocol.EvictionView) bool) (view *protocol.EvictionView, fault string, err error) {
	if c.Unreachable() {
		// Without this check, the call for each policy would time out in turn.
		return nil, "", fmt.Errorf("ask for the evictions of RolloutPolicy %s: Temporal does not respond", start.Policy.Name)
	}
	id := protocol.EvictionWorkflowID(start.Policy.Name, start.Policy.UID)
	run := &common.WorkflowExecution{WorkflowId: id}
	description, err := call(ctx, c.connection, "DescribeWorkflowExecution", c.client.WorkflowService().DescribeWorkflowExecution,
		&workflowservice.DescribeWorkflowExecutionRequest{Namespace: c.namespace, Execution: run})
	if err != nil && !is[*serviceerror.NotFound](err) {
		return nil, "", fmt.Errorf("ask for the evictions of RolloutPolicy %s: %w", start.Policy.Name, err)
	}
	info := description.GetWorkflowExecutionInfo()
	if info.GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, "", c.startEvictions(ctx, id, start)
	}
	if err := c.converter.FromPayload(info.GetMemo().GetFields()[protocol.EvictionMemo], &view); err != nil {
		return nil, "", fmt.Errorf("read the memo %s of workflow %s: %w", protocol.EvictionMemo, id, err)
	}
	if view != nil {
		if err := c.signalEvictions(ctx, run, start, view, wakes); err != nil {
			return nil, "", err
		}
	}
	return view, c.evictionFault(ctx, id, description), nil
}

func (c *Client) signalEvictions(ctx context.Context, run *common.WorkflowExecution, start protocol.EvictionInput, view *protocol.EvictionView, wakes func(*protocol.EvictionView) bool) error {
	if view.HasLost(start.View.Pause) {
		pause, err := c.converter.ToPayloads(start.View.Pause)
		if err != nil {
			return fmt.Errorf("encode the pause of workflow %s: %w", run.WorkflowId, err)
		}
		// Temporal drops a second signal with the same request id, so a retry does not revert a later resume.
		once := fmt.Sprintf("pause/%d", start.View.Pause.At.Unix())
		if _, err := c.signalOnce(ctx, run, protocol.PauseSignal, pause, once); err != nil {
			return fmt.Errorf("pause the evictions of RolloutPolicy %s: %w", start.Policy.Name, err)
		}
	}
	if wakes(view) {
		if _, err := c.signal(ctx, run, protocol.WakeSignal, nil); err != nil {
			return fmt.Errorf("wake the evictions of RolloutPolicy %s: %w", start.Policy.Name, err)
		}
	}
	return nil
}

// evictionFault returns the message of the fault that stops an open run of evictions, or "". If the diagnosis
// fails, the last known fault applies.
func (c *Client) evictionFault(ctx context.Context, id string, description *workflowservice.DescribeWorkflowExecutionResponse) string {
	now := c.clock.Now()
	maps.DeleteFunc(c.evictions, func(_ string, known *diagnosis) bool { return now.Sub(known.at) > diagnosisTTL })
	known := c.evictions[id]
	if known == nil {
		known = &diagnosis{}
		c.evictions[id] = known
	}
	known.at = now
	run := &Run{WorkflowID: id, pinned: pinnedVersion(description.GetWorkflowExecutionInfo().GetVersioningInfo())}
	c.addPending(run, description)
	found, sure, err := c.Diagnose(ctx, run, &known.tasks, known.fault)
	switch {
	case err != nil:
		c.log.V(1).Info("cannot diagnose a run of evictions", "workflowID", id, "cause", err.Error())
	case sure:
		known.fault = found
	}
	return known.fault.Message
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
