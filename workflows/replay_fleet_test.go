package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// fleets returns the files of the recorded histories of Fleet and FleetRegistry.
func fleets(t *testing.T) []string { return recordings(t, "fleets") }

func newFleetReplayer(t *testing.T, rollout, registry any) worker.WorkflowReplayer {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(rollout, workflow.RegisterOptions{Name: protocol.FleetWorkflow})
	replayer.RegisterWorkflowWithOptions(registry, workflow.RegisterOptions{Name: protocol.FleetRegistryWorkflow})
	return replayer
}

func TestRecordedFleetsReplayUpToEachTask(t *testing.T) {
	for _, file := range fleets(t) {
		t.Run(nameOf(file), func(t *testing.T) {
			whole := recorded(t, file)
			replayer := newFleetReplayer(t, Fleet, FleetRegistry)
			require.NoError(t, replayer.ReplayWorkflowHistory(nil, whole))
			replayUpToEachTask(t, replayer, whole)
		})
	}
}

// The replay fails for a workflow with one more timer than the recorded workflow.
func TestAChangedFleetDoesNotReplay(t *testing.T) {
	rollout := func(ctx workflow.Context, state protocol.FleetState) error {
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return err
		}
		return Fleet(ctx, state)
	}
	registry := func(ctx workflow.Context, registry protocol.FleetRegistry) error {
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return err
		}
		return FleetRegistry(ctx, registry)
	}
	for _, file := range fleets(t) {
		t.Run(nameOf(file), func(t *testing.T) {
			require.ErrorContains(t, newFleetReplayer(t, rollout, registry).ReplayWorkflowHistory(nil, recorded(t, file)), "TMPRL1100")
		})
	}
}
