package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

func (r *run) upgradeBatch(ctx workflow.Context, next protocol.NextBatchResult) error {
	r.progress.Batches++
	r.log(ctx).Info("batch chosen", "batch", r.progress.Batches, "pods", len(next.Pods), "queued", len(next.Queued), "plan", next.Message)
	result, err := r.upgrade(ctx, next)
	if err != nil {
		return fmt.Errorf("upgrade batch %d of generation %d: %w", r.progress.Batches, r.input.Generation, err)
	}
	r.logBatch(ctx, result)
	r.progress.Upgraded += countWritten(result.Written)
	r.progress.RejectedWrites += len(result.Rejected)
	r.written(result.Written)
	if next.Hot {
		r.migrate(ctx)
	}
	r.quiet = result.Quiet
	again := r.rejected().record(workflow.Now(ctx), references(result.Written), result.Rejected)
	r.rejectedPods = recordRejected(r.rejectedPods, references(result.Written), result.Rejected)
	workflow.SetCurrentDetails(ctx, r.details())
	if result.Frozen {
		// The worker of the next plan may not have observed the freeze yet.
		return r.awaitSignalFor(ctx, skippedPause, waitFrozen)
	}
	if result.Failing {
		// The next plan stops the rollout once the worker of the plan observes the failed pods.
		return r.awaitSignalFor(ctx, skippedPause, waitFailing)
	}
	if again && len(result.Written) == 0 {
		// The batch contained only rejected pods, and no write was accepted. The plan of the batch had the phase
		// Progressing, so the phase is corrected here.
		r.phase = protocol.PhaseWaiting
		workflow.SetCurrentDetails(ctx, r.details())
		return r.sleep(ctx, waitRejected)
	}
	return nil
}

// upgrade runs one batch. The batch continues while slots are released, and is cancelled when a signal
// arrives.
func (r *run) upgrade(ctx workflow.Context, next protocol.NextBatchResult) (result protocol.UpgradeBatchResult, err error) {
	summary := fmt.Sprintf("upgrade batch %d: %d pods", r.progress.Batches, len(next.Pods))
	if len(next.Queued) > 0 {
		summary += fmt.Sprintf(", and of %d more as slots become free", len(next.Queued))
	}
	upgrading, end := workflow.WithCancel(batchOptions(ctx, summary))
	defer end()
	batch := workflow.ExecuteActivity(upgrading, protocol.UpgradeBatchActivity, protocol.UpgradeBatchInput{
		SidecarSet: r.input.SidecarSet,
		Generation: r.input.Generation,
		Pods:       next.Pods,
		Queued:     next.Queued,
		Rejected:   r.asked,
		Written:    r.progress.Written,
		Run:        r.progress.Run,
		Stage:      r.progress.Stage,
	})
	began := workflow.Now(ctx)
	r.upgrading = true
	defer func() { r.upgrading = false }()
	if next.Hot {
		// Only resets release the slots of hot pods.
		r.migrate(ctx)
	}
	if err := workflow.Await(ctx, func() bool { return batch.IsReady() || r.hasSignals() }); err != nil {
		return result, err
	}
	if !batch.IsReady() {
		end()
	}
	err = batch.Get(ctx, &result)
	r.dropStallAfterOutage(ctx, began, result.Took)
	if result.Limited {
		r.progress.Stall = nil
	}
	if err != nil && upgrading.Err() != nil && ctx.Err() == nil {
		// The result is unknown, because no worker ran or the worker was lost. A cancelled batch
		// is not retried.
		return protocol.UpgradeBatchResult{Written: possiblyWritten(next)}, nil
	}
	return result, err
}

// written records the pods that a batch wrote. The cache must show these writes before the next plan. If the
// batch has certainly written a pod, the writes of earlier batches are dropped, because a cache that shows a
// later write also shows earlier writes. Each pod has one entry, because otherwise the list would grow with each
// batch that is cancelled before a worker claims the batch. A replay does not compare the list, because only the
// inputs of activities contain the list.
func (r *run) written(pods []protocol.WrittenPod) {
	if countWritten(pods) == 0 {
		newest := map[protocol.PodReference]bool{}
		for _, pod := range pods {
			newest[pod.PodReference] = true
		}
		earlier := slices.DeleteFunc(slices.Clone(r.progress.Written), func(pod protocol.WrittenPod) bool { return newest[pod.PodReference] })
		pods = slices.Concat(earlier, pods)
	}
	r.progress.Written = pods
}

// possiblyWritten lists the pods that a batch may have written.
func possiblyWritten(batch protocol.NextBatchResult) []protocol.WrittenPod {
	var written []protocol.WrittenPod
	for _, pod := range slices.Concat(batch.Pods, batch.Queued) {
		written = append(written, protocol.WrittenPod{PodReference: pod.PodReference})
	}
	return written
}

// countWritten counts the pods whose write is certain, because the write has a resourceVersion.
func countWritten(written []protocol.WrittenPod) (n int) {
	for _, pod := range written {
		if pod.ResourceVersion != "" {
			n++
		}
	}
	return n
}

func batchOptions(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           protocol.WriteTaskQueue(workflow.GetInfo(ctx).TaskQueueName),
		StartToCloseTimeout: protocol.UpgradeBatchLimit,
		HeartbeatTimeout:    protocol.HeartbeatTimeout,
		Summary:             summary,
		RetryPolicy:         retryForever(),
		WaitForCancellation: true,
	})
}
