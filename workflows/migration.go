package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// migration is the state of the migration of hot pods. The migration resets the standby twins of hot pods in
// parallel with the batches, so that no slot stays empty. A pause does not stop the migration, because hot
// upgrades in progress continue (SPEC §7.1).
type migration struct {
	running bool
	// asleep is set while the migration waits until the run is woken or starts an upgrade batch.
	asleep bool
	// writing is set while a reset batch is running.
	writing bool
	// end cancels the running reset batch. The batch finishes the writes in flight.
	end     workflow.CancelFunc
	batches int
	// wakes is the value of run.wakes when the migration last woke up.
	wakes    int
	rejected protocol.Rejections
	err      error
}

// migrate starts the migration unless the migration is running. The migration ends once no pod is migrating.
func (r *run) migrate(ctx workflow.Context) {
	if r.migration.running {
		return
	}
	r.migration.running = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { r.migration.running, r.migration.rejected = false, protocol.Rejections{} }()
		for pending := true; pending && r.migration.err == nil; {
			pending, r.migration.err = r.resetBatch(ctx)
		}
	})
}

// awaitWake waits until a signal or a plan wakes the migration, or until an upgrade batch is running, because the
// hot pods of the batch migrate after the upgrade.
func (r *run) awaitWake(ctx workflow.Context) error {
	r.migration.asleep = true
	defer func() { r.migration.asleep = false }()
	err := workflow.Await(ctx, func() bool { return r.wakes != r.migration.wakes || r.upgrading })
	r.migration.wakes = r.wakes
	return err
}

// followMigration starts the migration if pods are migrating, and wakes a sleeping migration if pods can be
// reset.
func (r *run) followMigration(ctx workflow.Context, counts protocol.Counts) {
	if counts.Migrating > 0 {
		r.migrate(ctx)
	}
	if counts.Migrated > 0 && r.migration.asleep {
		r.wakes++
	}
}

// rest waits after a reset batch that reset no pod. If writes were rejected, the wait doubles each time. The
// wait ends early when the run is woken or upgrades more pods, because migrating pods must not wait for a
// rejected pod.
func (r *run) rest(ctx workflow.Context, rejected bool) error {
	m := &r.migration
	wait, reason := skippedPause, waitSkipped
	if rejected {
		wait, reason = m.rejected.Backoff, waitRejected
	}
	wakes, batches := r.wakes, r.progress.Batches
	_, err := workflow.AwaitWithOptions(ctx, waitOptions(wait, reason), func() bool { return r.wakes != wakes || r.progress.Batches != batches })
	m.wakes = r.wakes
	return err
}

// resetBatch waits for migrated pods and resets the standby twins of these pods. pending reports whether more
// pods may have to be reset.
func (r *run) resetBatch(ctx workflow.Context) (pending bool, err error) {
	m := &r.migration
	var next protocol.AwaitMigrationResult
	err = workflow.ExecuteActivity(pollOptions(ctx, fmt.Sprintf("await migration, batch %d", m.batches+1)), protocol.AwaitMigrationActivity,
		protocol.AwaitMigrationInput{
			SidecarSet: r.input.SidecarSet, Written: r.progress.Written, Rejected: m.rejected.Pods, Upgrading: r.upgrading,
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
	resetting, m.end = workflow.WithCancel(batchOptions(ctx, fmt.Sprintf("reset batch %d: %d pods, and pods that migrate meanwhile", m.batches, len(next.Pods))))
	err = workflow.ExecuteActivity(resetting, protocol.ResetBatchActivity, protocol.ResetBatchInput{
		SidecarSet: r.input.SidecarSet, Pods: next.Pods, Rejected: m.rejected.Pods, Upgrading: r.upgrading, Run: r.progress.Run,
	}).Get(ctx, &result)
	if err != nil && resetting.Err() != nil && ctx.Err() == nil {
		// The batch was cancelled and is not retried. The next check reads the state of the pods.
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reset batch %d: %w", m.batches, err)
	}
	r.logReset(ctx, result)
	rejections{&m.rejected}.record(workflow.Now(ctx), nil, result.Rejected)
	r.rejectedPods = recordRejected(r.rejectedPods, nil, result.Rejected)
	workflow.SetCurrentDetails(ctx, r.details())
	if result.Reset > 0 {
		m.rejected.Backoff = 0
		return true, nil
	}
	m.writing = false
	return true, r.rest(ctx, len(result.Rejected) > 0)
}
