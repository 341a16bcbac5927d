package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/workflows"
)

// replayHistories replays every run that the tests have made, however it was
// interrupted: after the last test, and before a test that empties Temporal.
func replayHistories(ctx context.Context) error {
	list, err := stack.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: cluster.TemporalNamespace})
	if err != nil {
		return fmt.Errorf("list the runs to replay: %w", err)
	}
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DataConverter: stack.codec.WorkflowDataConverter()})
	if err != nil {
		return fmt.Errorf("make a replayer: %w", err)
	}
	replayer.RegisterWorkflowWithOptions(workflows.Rollout, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	var failed []error
	for _, run := range list.Executions {
		err := replayer.ReplayWorkflowExecution(ctx, stack.temporal.WorkflowService(), nil, cluster.TemporalNamespace,
			workflow.Execution{ID: run.Execution.WorkflowId, RunID: run.Execution.RunId})
		if err != nil {
			failed = append(failed, fmt.Errorf("replay %s, %s: %w", run.Execution.WorkflowId, run.Status, err))
		}
	}
	if len(list.Executions) == 0 && flag.Lookup("test.run").Value.String() == "" {
		failed = append(failed, errors.New("replay: the tests have made no run"))
	}
	return errors.Join(failed...)
}
