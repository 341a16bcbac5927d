package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// longHistory is how many events a run may have before it continues as
	// new; the server ends runs at 51,200.
	longHistory = 4000
	// maxRefused bounds the payload that names refused pods.
	maxRefused = 200
	// A batch in which every write was refused is followed by a backoff, which
	// doubles each time.
	minBackoff = 2 * time.Second
	maxBackoff = 10 * time.Minute
	// skippedPause follows a batch that found its pods changed: the caches of two
	// workers may differ.
	skippedPause = time.Second
	// longestSleep is when a run looks although nobody woke it.
	longestSleep = 2 * time.Hour
	// retryInterval bounds how late an outage of the API server is seen to be over.
	retryInterval = 5 * time.Second
)

// run is the state of one workflow run.
type run struct {
	input    protocol.RolloutInput
	newest   int64
	hold     *protocol.Hold
	progress protocol.Progress
	phase    protocol.Phase
	message  string
	counts   protocol.Counts
	refused  []protocol.PodReference
	// failures are the pods whose newest write was refused, for people.
	failures   []protocol.FailedPod
	backoff    time.Duration
	since      time.Time
	signals    signals
	shown      protocol.Phase
	ended      bool
	conditions conditions
	migration  migration
	// upgrading is set while an upgrade batch is running.
	upgrading bool
	// updated says that an update came since signals were read. woken says that a
	// signal asked the run to look at the cluster, or that its wait has timed
	// out; wakes counts these signals.
	updated, woken bool
	wakes          int
}

func newRun(ctx workflow.Context, input protocol.RolloutInput) (*run, error) {
	r := &run{
		input:    input,
		newest:   input.Generation,
		hold:     input.Hold,
		progress: input.Progress,
		since:    workflow.Now(ctx),
		signals:  newSignals(ctx),
	}
	if err := workflow.SetQueryHandler(ctx, protocol.StatusQuery, r.status); err != nil {
		return nil, fmt.Errorf("answer the query %s: %w", protocol.StatusQuery, err)
	}
	if err := r.handleUpdates(ctx); err != nil {
		return nil, err
	}
	if r.progress.Run == "" || wasReset(ctx) {
		r.progress.Run = workflow.GetInfo(ctx).WorkflowExecution.RunID
	}
	if _, noted := workflow.GetInfo(ctx).Memo.GetFields()[protocol.HoldMemo]; r.hold != nil && !noted {
		if err := r.noteHold(ctx, nil); err != nil {
			return nil, err
		}
	}
	if input.Progress.Migrating {
		r.migrate(ctx)
	}
	return r, r.show(ctx, protocol.PhaseProgressing, "looking for pods to upgrade")
}

// wasReset reports whether this run was made from another by a reset: that one may
// still have activities that write.
func wasReset(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.OriginalRunID != info.WorkflowExecution.RunID
}

// continueAsNewDue reports whether the run continues as new, and as which
// generation: a newer one, or an older one if the cluster has no newer.
func (r *run) continueAsNewDue(ctx workflow.Context) (generation int64, due bool) {
	if r.newest != r.input.Generation {
		return r.newest, true
	}
	info := workflow.GetInfo(ctx)
	long := info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= longHistory
	return r.input.Generation, long
}

// nextBatch asks for pods. It answers false when a signal came first: the
// question is withdrawn, which is safe because it changes nothing.
func (r *run) nextBatch(ctx workflow.Context) (next protocol.NextBatchResult, answered bool, err error) {
	asking, withdraw := workflow.WithCancel(pollOptions(ctx, fmt.Sprintf("choose batch %d", r.progress.Batches+1)))
	defer withdraw()
	r.conditions.omitted = r.conditions.running
	answer := workflow.ExecuteActivity(asking, protocol.NextBatchActivity, protocol.NextBatchInput{
		SidecarSet:     r.input.SidecarSet,
		Generation:     r.input.Generation,
		Written:        slices.Concat(r.progress.Written, r.conditions.written),
		Refused:        r.refused,
		SkipConditions: r.conditions.skip, SkipTrueConditions: r.conditions.running,
		Held:          r.hold != nil,
		MigrationIdle: !r.migration.running || r.migration.asleep,
		Run:           r.progress.Run,
	})
	err = workflow.Await(ctx, func() bool { return answer.IsReady() || r.hasSignals() })
	if err != nil || !answer.IsReady() {
		return next, false, err
	}
	if err := answer.Get(ctx, &next); err != nil {
		return next, false, fmt.Errorf("choose the next batch of generation %d: %w", r.input.Generation, err)
	}
	r.counts = next.Counts
	return next, true, r.show(ctx, next.Phase, next.Message)
}

func (r *run) upgradeBatch(ctx workflow.Context, next protocol.NextBatchResult) error {
	r.progress.Batches++
	r.log(ctx).Info("batch chosen", "batch", r.progress.Batches, "pods", len(next.Pods), "reserve", len(next.Reserve), "plan", next.Message)
	result, err := r.upgrade(ctx, next)
	if err != nil {
		return fmt.Errorf("upgrade batch %d of generation %d: %w", r.progress.Batches, r.input.Generation, err)
	}
	r.logBatch(ctx, result)
	r.progress.Upgraded += countWritten(result.Written)
	r.progress.Failed += len(result.Failed)
	r.written(result.Written)
	if next.Hot {
		r.migrate(ctx)
	}
	r.refused = addRefused(r.refused, result.Failed)
	r.failures = noteFailures(r.failures, references(result.Written), result.Failed)
	workflow.SetCurrentDetails(ctx, r.details())
	if len(result.Written) > 0 {
		r.backoff = 0
		return nil
	}
	if !waitsInWorkflow(ctx) {
		return r.awaitSignalFor(ctx, r.nextBackoff(), waitRefused)
	}
	if len(result.Failed) == 0 {
		return nil
	}
	return r.sleep(ctx, r.nextBackoff(), waitRefused)
}

// written notes the pods that a batch wrote: the cache must show them before the
// next plan. Those of the batch before count as shown once later ones are, but
// not if it is unknown whether there are any.
func (r *run) written(pods []protocol.WrittenPod) {
	if countWritten(pods) == 0 {
		pods = slices.Concat(r.progress.Written, pods)
	}
	r.progress.Written = pods
}

// upgrade runs one batch, which goes on while slots become free and ends early
// when a signal comes.
func (r *run) upgrade(ctx workflow.Context, next protocol.NextBatchResult) (result protocol.UpgradeBatchResult, err error) {
	summary := fmt.Sprintf("upgrade batch %d: %d pods", r.progress.Batches, len(next.Pods))
	if len(next.Reserve) > 0 {
		summary += fmt.Sprintf(", and of %d more as slots become free", len(next.Reserve))
	}
	upgrading, end := workflow.WithCancel(batchOptions(ctx, summary))
	defer end()
	batch := workflow.ExecuteActivity(upgrading, protocol.UpgradeBatchActivity, protocol.UpgradeBatchInput{
		SidecarSet: r.input.SidecarSet,
		Generation: r.input.Generation,
		Pods:       next.Pods,
		Reserve:    next.Reserve,
		Refused:    r.refused,
		Written:    r.progress.Written,
		Run:        r.progress.Run,
	})
	if len(next.Reserve) > 0 || waitsInWorkflow(ctx) {
		r.upgrading = true
		defer func() { r.upgrading = false }()
		if next.Hot {
			// Slots become free by resets alone.
			r.migrate(ctx)
		}
		if err := workflow.Await(ctx, func() bool { return batch.IsReady() || r.hasSignals() }); err != nil {
			return result, err
		}
		if !batch.IsReady() {
			end()
		}
	}
	err = batch.Get(ctx, &result)
	if err != nil && upgrading.Err() != nil && ctx.Err() == nil {
		// Nobody said what had been written: no worker was there, or it was
		// lost. What is asked to end is not tried again.
		return protocol.UpgradeBatchResult{Written: possiblyWritten(next)}, nil
	}
	return result, err
}

// possiblyWritten lists the pods that a batch may have written.
func possiblyWritten(batch protocol.NextBatchResult) []protocol.WrittenPod {
	var written []protocol.WrittenPod
	for _, pod := range slices.Concat(batch.Pods, batch.Reserve) {
		written = append(written, protocol.WrittenPod{PodReference: pod.PodReference})
	}
	return written
}

// countWritten counts the pods that were written for sure.
func countWritten(written []protocol.WrittenPod) (n int) {
	for _, pod := range written {
		if pod.ResourceVersion != "" {
			n++
		}
	}
	return n
}

// addRefused adds refused pods to the ones that go last.
func addRefused(refused []protocol.PodReference, failed []protocol.FailedPod) []protocol.PodReference {
	for _, pod := range failed {
		if !slices.Contains(refused, pod.PodReference) && len(refused) < maxRefused {
			refused = append(refused, pod.PodReference)
		}
	}
	return refused
}

func (r *run) nextBackoff() time.Duration {
	r.backoff = doubled(r.backoff)
	return r.backoff
}

func doubled(backoff time.Duration) time.Duration { return min(max(2*backoff, minBackoff), maxBackoff) }

// continueAs continues as a new run, which keeps the hold and what was written
// last. A running reset batch ends first.
func (r *run) continueAs(ctx workflow.Context, generation int64) (protocol.RolloutResult, error) {
	if r.migration.writing && workflow.GetVersion(ctx, "end the reset in hand", workflow.DefaultVersion, 1) == 1 {
		r.migration.end()
	}
	if err := workflow.Await(ctx, func() bool { return !r.migration.writing }); err != nil {
		return protocol.RolloutResult{}, err
	}
	if err := workflow.Await(ctx, func() bool { return !r.conditions.running }); err != nil {
		return protocol.RolloutResult{}, err
	}
	// What came meanwhile is lost otherwise. Nothing comes after this: the
	// server lets no run end that has not seen all.
	if r.hasSignals() {
		if err := r.readSignals(ctx); err != nil {
			return protocol.RolloutResult{}, err
		}
		generation = r.newest
	}
	r.progress.Migrating = r.migration.running
	next := protocol.RolloutInput{
		SidecarSet: r.input.SidecarSet,
		Generation: generation,
		Hold:       r.hold,
		Progress:   r.progress,
	}
	if generation != r.input.Generation {
		next.Progress = protocol.Progress{Written: r.progress.Written, Migrating: r.progress.Migrating, Run: r.progress.Run}
		r.log(ctx).Info("rollout superseded", "newGeneration", generation)
		if err := r.show(ctx, protocol.PhaseSuperseded, fmt.Sprintf("generation %d took over", generation)); err != nil {
			return protocol.RolloutResult{}, err
		}
	}
	return r.result(), workflow.NewContinueAsNewError(ctx, protocol.RolloutWorkflow, next)
}

func (r *run) result() protocol.RolloutResult {
	return protocol.RolloutResult{
		Phase: r.phase, Message: r.message, Counts: r.counts,
		Batches: r.progress.Batches, Upgraded: r.progress.Upgraded,
	}
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

func pollOptions(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: protocol.NextBatchPoll + time.Minute,
		HeartbeatTimeout:    protocol.HeartbeatTimeout,
		Summary:             summary,
		RetryPolicy:         retryForever(),
	})
}

func retryForever() *temporal.RetryPolicy {
	return &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: retryInterval}
}
