package workflows

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// histories returns the files of the recorded histories of Rollout. Recorded histories are never replaced. A
// change that cannot replay a recorded history would break open runs.
func histories(t *testing.T) []string { return recordings(t, "histories") }

// recordings returns the files of the recorded histories of all releases in a folder of testdata.
func recordings(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// nameOf returns the release and the file name of a history.
func nameOf(file string) string {
	return filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file))
}

func replay(t *testing.T, definition any, file string) error {
	t.Helper()
	return newReplayer(t, protocol.RolloutWorkflow, definition).ReplayWorkflowHistoryFromJSONFile(nil, file)
}

func newReplayer(t *testing.T, name string, definition any) worker.WorkflowReplayer {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{Interceptors: Interceptors(), DisableDeadlockDetection: true})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(definition, workflow.RegisterOptions{Name: name})
	return replayer
}

func TestRecordedHistoriesReplay(t *testing.T) {
	for _, file := range histories(t) {
		t.Run(nameOf(file), func(t *testing.T) {
			require.NoError(t, replay(t, Rollout, file))
		})
	}
}

// A new release may replay a run at any workflow task, so each history is replayed up to each workflow task.
func TestRecordedHistoriesReplayUpToEachTask(t *testing.T) {
	for _, file := range histories(t) {
		t.Run(nameOf(file), func(t *testing.T) {
			replayUpToEachTask(t, newReplayer(t, protocol.RolloutWorkflow, Rollout), recorded(t, file))
		})
	}
}

func replayUpToEachTask(t *testing.T, replayer worker.WorkflowReplayer, whole *history.History) {
	t.Helper()
	for i, event := range whole.Events {
		if event.EventType == enums.EVENT_TYPE_WORKFLOW_TASK_STARTED {
			require.NoError(t, replayer.ReplayWorkflowHistory(nil, &history.History{Events: whole.Events[:i+1]}), "event %d", event.EventId)
		}
	}
}

func recorded(t *testing.T, file string) *history.History {
	t.Helper()
	text, err := os.Open(file)
	require.NoError(t, err)
	defer text.Close()
	whole, err := client.HistoryFromJSON(text, client.HistoryJSONOptions{})
	require.NoError(t, err)
	return whole
}

// During a rolling update, a new operator starts a run with images, and an old worker, which ignores the
// images, executes the first workflow task of the run.
func TestAHistoryOfAWorkerThatIgnoresImagesReplays(t *testing.T) {
	for _, file := range histories(t) {
		t.Run(nameOf(file), func(t *testing.T) {
			whole := recorded(t, file)
			started := whole.Events[0].GetWorkflowExecutionStartedEventAttributes()
			var input protocol.RolloutInput
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(started.Input, &input))
			input.Images = "agent=agent:v2"
			var err error
			started.Input, err = converter.GetDefaultDataConverter().ToPayloads(input)
			require.NoError(t, err)
			require.NoError(t, newReplayer(t, protocol.RolloutWorkflow, Rollout).ReplayWorkflowHistory(nil, whole))
		})
	}
}

// The replay fails for a workflow with one more timer than the recorded workflow. TMPRL1100 is the code of
// the SDK for a history that does not fit the workflow.
func TestChangedWorkflowDoesNotReplay(t *testing.T) {
	changed := func(ctx workflow.Context, input protocol.RolloutInput) (protocol.RolloutResult, error) {
		if err := workflow.Sleep(ctx, minBackoff); err != nil {
			return protocol.RolloutResult{}, err
		}
		return Rollout(ctx, input)
	}
	for _, file := range histories(t) {
		t.Run(nameOf(file), func(t *testing.T) {
			require.ErrorContains(t, replay(t, changed, file), "TMPRL1100")
		})
	}
}
