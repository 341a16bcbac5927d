package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// longHistory is the number of events after which a run continues as new. The server
	// terminates a run with 51,200 events.
	longHistory = 4000
	// maxNamedRejected limits the rejected pods whose names a run stores.
	maxNamedRejected = 200
	// skippedPause is the wait after a reset batch that reset no pod, and after a batch that a freeze or failed
	// pods stopped. Without this wait, the run would retry in a tight loop while the caches of two workers
	// differ.
	skippedPause = time.Second
	// checkInterval is the longest time between two checks of the cluster by a waiting run. A
	// check adds eleven events to the history.
	checkInterval = 5 * time.Minute
	// retryInterval is the longest backoff of an activity. A longer backoff would delay the
	// rollout after an outage of the API server.
	retryInterval = 5 * time.Second
)

// run is the state of one workflow run.
type run struct {
	input    protocol.RolloutInput
	newest   protocol.GenerationInput
	paused   *protocol.Pause
	progress protocol.Progress
	phase    protocol.Phase
	message  string
	counts   protocol.Counts
	// fleetFault is the fault of the connection to the fleet in the newest plan. During this fault, no permit can
	// arrive.
	fleetFault string
	// asked contains the rejected pods that were the input of the newest plan.
	asked protocol.Rejected
	// rejectedPods lists the pods whose newest write was rejected, for the current details in the UI.
	rejectedPods []protocol.RejectedPod
	since        time.Time
	signals      signals
	shown        protocol.Phase
	ended        bool
	conditions   conditions
	migration    migration
	// upgrading is set while an upgrade batch is running, and quiet once no pod has been
	// upgraded for a while.
	upgrading, quiet bool
	// updated is set if an update has arrived since the run last read its signals. woken is set
	// if a signal requests a check of the cluster, or if the wait of the run has timed out. wakes
	// increases with each signal and each plan that wakes a sleeping migration.
	updated, woken bool
	wakes          int
	// again is the time from the newest plan until the next plan is due, or 0. See protocol.NextBatchResult.
	again time.Duration
	// resumed is set if the newest resume that the run has read ended a pause.
	resumed bool
}

func newRun(ctx workflow.Context, input protocol.RolloutInput) (*run, error) {
	r := &run{
		input:    input,
		newest:   protocol.GenerationInput{Generation: input.Generation, Images: input.Images},
		paused:   input.Pause,
		progress: input.Progress,
		since:    workflow.Now(ctx),
		signals:  newSignals(ctx),
	}
	memo := workflow.GetInfo(ctx).Memo.GetFields()
	// SetUpdateHandler runs the updates that have already arrived, and these updates read r.resumed.
	_, r.resumed = memo[protocol.ResumeMemo]
	if err := workflow.SetQueryHandler(ctx, protocol.StatusQuery, r.status); err != nil {
		return nil, fmt.Errorf("answer the query %s: %w", protocol.StatusQuery, err)
	}
	if err := cmp.Or(r.handleUpdates(ctx), r.handleStepUpdates(ctx)); err != nil {
		return nil, err
	}
	if r.progress.Run == "" || wasReset(ctx) {
		r.progress.Run = workflow.GetInfo(ctx).WorkflowExecution.RunID
	}
	if _, noted := memo[protocol.PauseMemo]; r.paused != nil && !noted {
		if err := r.recordPause(ctx, nil); err != nil {
			return nil, err
		}
	}
	if _, stale := memo[protocol.StageMemo]; stale && r.progress.Stage == nil {
		// The run inherited the memo from a run of another generation.
		if err := writeMemo(ctx, protocol.StageMemo, nil); err != nil {
			return nil, err
		}
	}
	if _, stale := memo[protocol.PermitMemo]; stale && r.progress.Permit == nil {
		// The permit in the memo belongs to a run of another generation.
		if err := writeMemo(ctx, protocol.PermitMemo, nil); err != nil {
			return nil, err
		}
	}
	if input.Progress.Migrating {
		r.migrate(ctx)
	}
	return r, r.show(ctx, protocol.PhaseProgressing, "looking for pods to upgrade")
}

// wasReset reports whether this run was created by the reset of another run. Activities of the other run may
// still write, so this run needs its own identity in the Lease.
func wasReset(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.OriginalRunID != info.WorkflowExecution.RunID
}

// continueAsNewDue reports whether the run has to continue as new, because the SidecarSet has another
// generation or because the history is long. After a restore of etcd, the other generation can be lower.
func (r *run) continueAsNewDue(ctx workflow.Context) bool {
	return r.newest.Generation != r.input.Generation || hasLongHistory(ctx)
}

// hasLongHistory reports whether the history is so long that the run must continue as new.
func hasLongHistory(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= longHistory
}

// nextBatch requests a plan. If a signal arrives before the plan, nextBatch cancels the activity, and
// answered is false. The activity writes no pod, so the activity can be cancelled at any time.
func (r *run) nextBatch(ctx workflow.Context) (next protocol.NextBatchResult, answered bool, err error) {
	asking, cancel := workflow.WithCancel(pollOptions(ctx, fmt.Sprintf("choose batch %d", r.progress.Batches+1)))
	defer cancel()
	r.conditions.omitted = r.conditions.running
	now := workflow.Now(ctx)
	r.asked = r.rejected().asked(now)
	stage := r.progress.Stage
	answer := workflow.ExecuteActivity(asking, protocol.NextBatchActivity, protocol.NextBatchInput{
		SidecarSet:         r.input.SidecarSet,
		Generation:         r.input.Generation,
		Written:            slices.Concat(r.progress.Written, r.conditions.written),
		Rejected:           r.asked,
		RejectedConditions: r.rejectedConditions().asked(now),
		SkipTrueConditions: r.conditions.running,
		Quiet:              r.quiet,
		Paused:             r.paused != nil,
		MigrationIdle:      !r.migration.running || r.migration.asleep,
		Run:                r.progress.Run,
		Stage:              stage,
		Stages:             true,
		Overdue:            r.overdue(ctx),
		Permit:             r.progress.Permit,
	})
	err = workflow.Await(ctx, func() bool { return answer.IsReady() || r.hasSignals() })
	if err != nil || !answer.IsReady() {
		r.dropStallAfterOutage(ctx, now, 0)
		return next, false, err
	}
	if err := answer.Get(ctx, &next); err != nil {
		return next, false, fmt.Errorf("choose the next batch of generation %d: %w", r.input.Generation, err)
	}
	if r.dropStallAfterOutage(ctx, now, next.Took) && next.Failure != nil && next.Failure.Overdue {
		return next, false, nil
	}
	used := next.Stage
	if next.Phase == protocol.PhaseSuperseded {
		used = nil // the stage belongs to another generation
	}
	if valid, err := r.adoptStage(ctx, stage, used); err != nil || !valid {
		return next, false, err
	}
	r.counts = next.Counts
	r.progress.Stall = protocol.FollowStall(r.progress.Stall, next.ProgressDue, next.Counts, workflow.Now(ctx))
	r.again = next.Again
	r.rejected().forget(next.Gone)
	r.rejectedConditions().forget(next.GoneConditions)
	return next, true, r.show(ctx, next.Phase, next.Message)
}

// rejected returns the pods whose upgrade was rejected.
func (r *run) rejected() rejections { return rejections{&r.progress.Rejected} }

// rejectedConditions returns the pods whose condition was rejected.
func (r *run) rejectedConditions() rejections { return rejections{&r.progress.RejectedConditions} }

// continueAsNew ends a running reset batch, and continues as a new run. The new run keeps the pause, the pods
// that were written last, and the identity in the Lease.
func (r *run) continueAsNew(ctx workflow.Context) (protocol.RolloutResult, error) {
	if err := r.endWrites(ctx); err != nil {
		return protocol.RolloutResult{}, err
	}
	// The run reads the signals that arrived while endWrites waited. Otherwise, these signals would be lost. No
	// signal is lost after this point, because the server rejects the end of a run that has unread signals.
	if r.hasSignals() {
		if err := r.readSignals(ctx); err != nil {
			return protocol.RolloutResult{}, err
		}
	}
	r.progress.Migrating = r.migration.running
	next := protocol.RolloutInput{
		SidecarSet: r.input.SidecarSet,
		Generation: r.newest.Generation,
		Images:     r.newest.Images,
		Pause:      r.paused,
		Progress:   r.progress,
	}
	if next.Generation != r.input.Generation {
		next.Progress = protocol.Progress{Written: r.progress.Written, Migrating: r.progress.Migrating, Run: r.progress.Run, Stage: r.stageForNext(), Actions: r.progress.Actions}
		r.log(ctx).Info("rollout superseded", "newGeneration", next.Generation)
		// The next run inherits the memo, so the memo must contain the stage of the next run.
		if s := next.Progress.Stage; s != nil && workflow.GetVersion(ctx, "record the stage of the next run", workflow.DefaultVersion, 1) > workflow.DefaultVersion {
			if err := writeMemo(ctx, protocol.StageMemo, *s); err != nil {
				return protocol.RolloutResult{}, err
			}
		}
		if err := r.show(ctx, protocol.PhaseSuperseded, fmt.Sprintf("generation %d took over", next.Generation)); err != nil {
			return protocol.RolloutResult{}, err
		}
	}
	return r.result(), workflow.NewContinueAsNewError(ctx, protocol.RolloutWorkflow, next)
}

// endWrites ends a running reset batch, and waits until no pod is written. Another reset batch may begin while
// conditions are written.
func (r *run) endWrites(ctx workflow.Context) error {
	for first := true; r.migration.writing || r.conditions.running; first = false {
		if !first && workflow.GetVersion(ctx, "end each reset batch", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
			return nil
		}
		if r.migration.writing {
			r.migration.end()
		}
		if err := workflow.Await(ctx, func() bool { return !r.migration.writing }); err != nil {
			return err
		}
		if err := workflow.Await(ctx, func() bool { return !r.conditions.running }); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) result() protocol.RolloutResult {
	return protocol.RolloutResult{
		Phase: r.phase, Message: r.message, Counts: r.counts,
		Batches: r.progress.Batches, Upgraded: r.progress.Upgraded,
	}
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
