package workflows

import (
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// log writes nothing while a run is replayed.
func (r *run) log(ctx workflow.Context) log.Logger {
	return log.With(workflow.GetLogger(ctx), "sidecarset", r.input.SidecarSet.Name, "generation", r.input.Generation,
		"runID", workflow.GetInfo(ctx).WorkflowExecution.RunID)
}

// logBatch says what became of a batch, and of each refused pod, maxShownFailures of them
// at most.
func (r *run) logBatch(ctx workflow.Context, result protocol.UpgradeBatchResult) {
	logger := log.With(r.log(ctx), "batch", r.progress.Batches)
	logger.Info("batch written", "written", countWritten(result.Written), "skipped", result.Skipped, "refused", len(result.Failed), "stopped", result.Stopped)
	for _, pod := range result.Failed[:min(len(result.Failed), maxShownFailures)] {
		logger.Warn("pod refused", "pod", pod.PodReference.String(), "cause", pod.Reason)
	}
}
