package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// evictions are recorded histories of Eviction, as histories are those of Rollout.
func evictions(t *testing.T) []string { return recordings(t, "evictions") }

func newEvictionReplayer(t *testing.T, definition any) worker.WorkflowReplayer {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{Interceptors: Interceptors()})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(definition, workflow.RegisterOptions{Name: protocol.EvictionWorkflow})
	return replayer
}

func TestRecordedEvictionsReplayUpToEachTask(t *testing.T) {
	for _, file := range evictions(t) {
		t.Run(nameOf(file), func(t *testing.T) {
			whole := recorded(t, file)
			replayer := newEvictionReplayer(t, Eviction)
			require.NoError(t, replayer.ReplayWorkflowHistory(nil, whole))
			replayUpToEachTask(t, replayer, whole)
		})
	}
}

// The replay fails for a workflow with one more timer than the recorded workflow.
func TestAChangedEvictionDoesNotReplay(t *testing.T) {
	changed := func(ctx workflow.Context, input protocol.EvictionInput) error {
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return err
		}
		return Eviction(ctx, input)
	}
	for _, file := range evictions(t) {
		t.Run(nameOf(file), func(t *testing.T) {
			require.ErrorContains(t, newEvictionReplayer(t, changed).ReplayWorkflowHistory(nil, recorded(t, file)), "TMPRL1100")
		})
	}
}
