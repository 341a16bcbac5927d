package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// runWorkflow starts the workflow of a gate, unless the workflow was started before, and returns the result of
// the workflow as a measurement. The id of the workflow is unique for one attempt of one step, so a retried
// measurement finds the same workflow.
func (m *measurement) runWorkflow(ctx context.Context, g *outriggerv1.WorkflowGate) (protocol.Measurement, error) {
	temporal, id := activity.GetClient(ctx), m.workflow
	_, err := temporal.ExecuteWorkflow(ctx, sdk.StartWorkflowOptions{
		ID: id, TaskQueue: g.TaskQueue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
	}, g.Type, m.question())
	if _, rejected := errors.AsType[*serviceerror.InvalidArgument](err); rejected {
		return m.invalid("workflow.type and workflow.taskQueue", g.Type+", "+g.TaskQueue, err), nil
	}
	if err != nil {
		return protocol.Measurement{}, fmt.Errorf("start workflow %s (%s): %w", id, g.Type, err)
	}
	described, err := temporal.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return protocol.Measurement{}, fmt.Errorf("read workflow %s: %w", id, err)
	}
	switch status := described.GetWorkflowExecutionInfo().GetStatus(); status {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return protocol.Measurement{Phase: protocol.GateRunning, Message: "workflow " + id + " is running"}, nil
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return resultOf(ctx, temporal.GetWorkflow(ctx, id, ""))
	default:
		return inconclusive(fmt.Sprintf("workflow %s ended without a result (%s)", id, status)), nil
	}
}

// workflowOfGate returns the id of the workflow of a gate for one attempt of one step. The id contains the
// time at which the step was reached, because the same content may reach the step again after a rollback.
func workflowOfGate(in *protocol.MeasureGateInput) string {
	return fmt.Sprintf("gate/%s/%s/%d/%s/%s/%d-%d", in.SidecarSet.Name, in.SidecarSet.UID, in.Generation, in.Step, in.Gate.Name, in.Reached.UnixMilli(), in.Attempt)
}

func resultOf(ctx context.Context, run sdk.WorkflowRun) (protocol.Measurement, error) {
	var raw converter.RawValue
	if err := run.Get(ctx, &raw); err != nil {
		return protocol.Measurement{}, fmt.Errorf("read the result of workflow %s: %w", run.GetID(), err)
	}
	var answer gateAnswer
	if err := converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &answer); err != nil {
		return inconclusive("the result of workflow " + run.GetID() + " has no phase: " + err.Error()), nil
	}
	if answer.Phase == protocol.GateRunning {
		return inconclusive("workflow " + run.GetID() + " has ended, and its result is Running"), nil
	}
	return answer.measurement(), nil
}
