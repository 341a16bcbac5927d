package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// evictions returns the files of the recorded histories of Eviction.
func evictions(t *testing.T) []string { return recordings(t, "evictions") }

func TestRecordedEvictionsReplayUpToEachTask(t *testing.T) {
	for _, file := range evictions(t) {
		t.Run(nameOf(file), func(t *testing.T) {
			whole := recorded(t, file)
			replayer := newReplayer(t, protocol.EvictionWorkflow, Eviction)
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
			require.ErrorContains(t, newReplayer(t, protocol.EvictionWorkflow, changed).ReplayWorkflowHistory(nil, recorded(t, file)), "TMPRL1100")
		})
	}
}
