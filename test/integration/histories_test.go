package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/workflows"
)

// minReplayed is the minimum number of events of a history with a workflow task. A test may terminate a run
// before the first task.
const minReplayed = 3

// replayHistories replays every run of the tests. replayHistories is called after the last test, and before a
// test that deletes the data of Temporal.
func replayHistories(ctx context.Context) error {
	// A test of gates also runs a workflow of a user, which is not replayed.
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: cluster.TemporalNamespace, Query: "WorkflowType IN ('" + protocol.RolloutWorkflow + "', '" + protocol.FleetWorkflow + "', '" + protocol.FleetRegistryWorkflow + "', '" + protocol.EvictionWorkflow + "')",
	}
	var executions []*workflowpb.WorkflowExecutionInfo
	for {
		page, err := stack.temporal.ListWorkflow(ctx, request)
		if err != nil {
			return fmt.Errorf("list the runs to replay: %w", err)
		}
		executions = append(executions, page.Executions...)
		if request.NextPageToken = page.NextPageToken; len(request.NextPageToken) == 0 {
			break
		}
	}
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		DataConverter: stack.codec.WorkflowDataConverter(), Interceptors: workflows.Interceptors(),
		DisableDeadlockDetection: true, // An overloaded machine may suspend the replay for a second.
	})
	if err != nil {
		return fmt.Errorf("make a replayer: %w", err)
	}
	for name, definition := range map[string]any{
		protocol.RolloutWorkflow: workflows.Rollout, protocol.FleetWorkflow: workflows.Fleet, protocol.FleetRegistryWorkflow: workflows.FleetRegistry,
		protocol.EvictionWorkflow: workflows.Eviction,
	} {
		replayer.RegisterWorkflowWithOptions(definition, workflow.RegisterOptions{Name: name})
	}
	var failed []error
	for _, run := range executions {
		events, err := fetchHistory(ctx, run.Execution)
		if err != nil {
			return err
		}
		if len(events.Events) < minReplayed {
			continue
		}
		// The test does not use ReplayWorkflowExecution of the SDK, because this function fails for a run with
		// a pending workflow task. For such a run, this function uses the namespace of the run instead of
		// ReplayNamespace.
		err = replayer.ReplayWorkflowHistoryWithOptions(nil, events, worker.ReplayWorkflowHistoryOptions{
			OriginalExecution: workflow.Execution{ID: run.Execution.WorkflowId, RunID: run.Execution.RunId}})
		if err != nil {
			failed = append(failed, fmt.Errorf("replay %s, %s: %w; its history: %s", run.Execution.WorkflowId, run.Status, err, keepHistory(run.Execution, events)))
		}
	}
	if len(executions) == 0 && flag.Lookup("test.run").Value.String() == "" {
		failed = append(failed, errors.New("replay: the tests have made no run"))
	}
	return errors.Join(failed...)
}

func fetchHistory(ctx context.Context, run *common.WorkflowExecution) (*history.History, error) {
	events := &history.History{}
	all := stack.temporal.GetWorkflowHistory(ctx, run.WorkflowId, run.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for all.HasNext() {
		event, err := all.Next()
		if err != nil {
			return nil, fmt.Errorf("read the history of %s, run %s: %w", run.WorkflowId, run.RunId, err)
		}
		events.Events = append(events.Events, event)
	}
	return events, nil
}

// keepHistory writes the history of a run to a file in the directory for temporary files. keepHistory returns
// the path of the file, or the text of an error.
func keepHistory(run *common.WorkflowExecution, events *history.History) string {
	text, err := protojson.Marshal(events)
	if err != nil {
		return err.Error()
	}
	path := filepath.Join(os.TempDir(), "outrigger-history-"+run.RunId+".json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err.Error()
	}
	return path
}
