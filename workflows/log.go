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
	logRefused(logger, result.Failed)
}

// logReset does the same for the reset of standby twins.
func (r *run) logReset(ctx workflow.Context, result protocol.ResetBatchResult) {
	logger := log.With(r.log(ctx), "resetBatch", r.migration.batches)
	logger.Info("standby twins reset", "reset", result.Reset, "refused", len(result.Failed))
	logRefused(logger, result.Failed)
}

func logRefused(logger log.Logger, failed []protocol.FailedPod) {
	for _, pod := range failed[:min(len(failed), maxShownFailures)] {
		logger.Warn("pod refused", "pod", pod.PodReference.String(), "cause", pod.Reason)
	}
}
