package workflows

import (
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// log returns a logger that writes nothing during a replay.
func (r *run) log(ctx workflow.Context) log.Logger {
	return log.With(workflow.GetLogger(ctx), "sidecarset", r.input.SidecarSet.Name, "generation", r.input.Generation,
		"runID", workflow.GetInfo(ctx).WorkflowExecution.RunID)
}

// logBatch logs the result of a batch, and up to maxShownRejected rejected pods.
func (r *run) logBatch(ctx workflow.Context, result protocol.UpgradeBatchResult) {
	logger := log.With(r.log(ctx), "batch", r.progress.Batches)
	logger.Info("batch written", "written", countWritten(result.Written), "skipped", result.Skipped, "rejected", len(result.Rejected), "stopped", result.Stopped)
	logRejected(logger, result.Rejected)
}

// logReset logs the result of a reset batch, and up to maxShownRejected rejected pods.
func (r *run) logReset(ctx workflow.Context, result protocol.ResetBatchResult) {
	logger := log.With(r.log(ctx), "resetBatch", r.migration.batches)
	logger.Info("standby twins reset", "reset", result.Reset, "rejected", len(result.Rejected))
	logRejected(logger, result.Rejected)
}

func logRejected(logger log.Logger, failed []protocol.RejectedPod) {
	for _, pod := range failed[:min(len(failed), maxShownRejected)] {
		logger.Warn("pod rejected", "pod", pod.PodReference.String(), "cause", pod.Reason)
	}
}
