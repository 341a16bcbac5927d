package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"go.temporal.io/api/common/v1"
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
			failed = append(failed, fmt.Errorf("replay %s, %s: %w; its history: %s", run.Execution.WorkflowId, run.Status, err, keepHistory(ctx, run.Execution)))
		}
	}
	if len(list.Executions) == 0 && flag.Lookup("test.run").Value.String() == "" {
		failed = append(failed, errors.New("replay: the tests have made no run"))
	}
	return errors.Join(failed...)
}

// keepHistory writes the history of a run beside the logs, and says where, or why not. An
// open run may have gone on since it was replayed.
func keepHistory(ctx context.Context, run *common.WorkflowExecution) string {
	text, err := temporal(ctx, "workflow", "show", "--workflow-id", run.WorkflowId, "--run-id", run.RunId, "--output", "json")
	if err != nil {
		return err.Error()
	}
	path := filepath.Join(os.TempDir(), "outrigger-history-"+run.RunId+".json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err.Error()
	}
	return path
}
