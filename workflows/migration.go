package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// migration resets the standby twins of hot pods beside the batches, so that the
// window stays full. It heeds no pause: what was begun is finished (SPEC §7.1).
type migration struct {
	running bool
	// asleep is set while nothing but a wake of the run has pods looked at.
	asleep bool
	// writing is set while a reset batch is running.
	writing bool
	// end has the running reset batch finish what it is writing, and no more.
	end     workflow.CancelFunc
	batches int
	// wakes of the run that were followed.
	wakes   int
	refused []protocol.PodReference
	backoff time.Duration
	err     error
}

// migrate starts the migration unless it runs already. It ends by itself when
// no pod is migrating any more.
func (r *run) migrate(ctx workflow.Context) {
	if r.migration.running {
		return
	}
	r.migration.running = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { r.migration.running = false }()
		for pending := true; pending && r.migration.err == nil; {
			pending, r.migration.err = r.resetBatch(ctx)
		}
	})
}

// awaitWake sleeps until a signal says that the cluster offers work, or an
// upgrade batch is running, whose pods will migrate.
func (r *run) awaitWake(ctx workflow.Context) error {
	if !waitsInWorkflow(ctx) {
		return nil
	}
	r.migration.asleep = true
	defer func() { r.migration.asleep = false }()
	_, err := workflow.AwaitWithOptions(ctx, waitOptions(longestSleep, waitMigration), func() bool { return r.wakes != r.migration.wakes || r.upgrading })
	r.migration.wakes = r.wakes
	return err
}

// wakeMigration has a migration that is asleep look at the pods.
func (r *run) wakeMigration(ctx workflow.Context) {
	if r.migration.asleep && restsCanEnd(ctx) {
		r.wakes++
	}
}

// rest pauses after a reset batch that reset nothing: longer each time if writes were
// refused. It ends early when the run is woken, or upgrades more pods: those that
// migrate must not wait for one that is refused.
func (r *run) rest(ctx workflow.Context, refused bool) error {
	m := &r.migration
	if !restsCanEnd(ctx) {
		m.backoff = doubled(m.backoff)
		return workflow.NewTimerWithOptions(ctx, m.backoff, workflow.TimerOptions{Summary: summary(waitRefused)}).Get(ctx, nil)
	}
	pause, reason := skippedPause, waitSkipped
	if refused {
		m.backoff = doubled(m.backoff)
		pause, reason = m.backoff, waitRefused
	}
	wakes, batches := r.wakes, r.progress.Batches
	_, err := workflow.AwaitWithOptions(ctx, waitOptions(pause, reason), func() bool { return r.wakes != wakes || r.progress.Batches != batches })
	m.wakes = r.wakes
	return err
}

// restsCanEnd is false for runs that began when nothing ended the rest of a migration.
func restsCanEnd(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, "wake a migration that rests", workflow.DefaultVersion, 1) == 1
}

// resetBatch awaits migrated pods and resets their standby twins.
func (r *run) resetBatch(ctx workflow.Context) (pending bool, err error) {
	m := &r.migration
	var next protocol.AwaitMigrationResult
	err = workflow.ExecuteActivity(pollOptions(ctx, fmt.Sprintf("await migration, batch %d", m.batches+1)), protocol.AwaitMigrationActivity,
		protocol.AwaitMigrationInput{
			SidecarSet: r.input.SidecarSet, Written: r.progress.Written, Refused: m.refused, Upgrading: r.upgrading,
		}).Get(ctx, &next)
	if err != nil {
		return false, fmt.Errorf("await migration: %w", err)
	}
	if len(next.Pods) == 0 {
		pending = next.Pending > 0 || r.upgrading
		if pending && !r.upgrading {
			err = r.awaitWake(ctx)
		}
		return pending, err
	}
	m.batches++
	m.writing = true
	defer func() { m.writing = false }()
	var result protocol.ResetBatchResult
	var resetting workflow.Context
	resetting, m.end = workflow.WithCancel(batchOptions(ctx, fmt.Sprintf("reset batch %d: %d pods, and those that migrate meanwhile", m.batches, len(next.Pods))))
	err = workflow.ExecuteActivity(resetting, protocol.ResetBatchActivity, protocol.ResetBatchInput{
		SidecarSet: r.input.SidecarSet, Pods: next.Pods, Refused: m.refused, Upgrading: r.upgrading,
	}).Get(ctx, &result)
	if err != nil && resetting.Err() != nil && ctx.Err() == nil {
		// It was asked to end, and is not tried again. What it did shows in the pods.
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reset batch %d: %w", m.batches, err)
	}
	r.logReset(ctx, result)
	m.refused = addRefused(m.refused, result.Failed)
	r.failures = noteFailures(r.failures, nil, result.Failed)
	workflow.SetCurrentDetails(ctx, r.details())
	if result.Reset > 0 {
		m.backoff = 0
		return true, nil
	}
	m.writing = false
	return true, r.rest(ctx, len(result.Failed) > 0)
}
