package workflows

import (
	"cmp"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// Rollout carries one generation of a SidecarSet to its pods: batch after
// batch, until nothing is left to do or a newer generation takes over.
//
// Signals: generation (a newer one continues the run as new; its own wakes a run
// that sleeps), pause and resume, which are also updates. Query: status.
func Rollout(ctx workflow.Context, input protocol.RolloutInput) (protocol.RolloutResult, error) {
	r, err := newRun(ctx, input)
	if err != nil {
		return protocol.RolloutResult{}, err
	}
	for !r.ended {
		if err := r.readSignals(ctx); err != nil {
			return protocol.RolloutResult{}, err
		}
		if err := cmp.Or(r.migration.err, r.conditions.err); err != nil {
			return protocol.RolloutResult{}, err
		}
		if generation, due := r.continueAsNewDue(ctx); due {
			return r.continueAs(ctx, generation)
		}
		if err := r.step(ctx); err != nil {
			return protocol.RolloutResult{}, err
		}
	}
	r.log(ctx).Info("rollout ended", "phase", string(r.phase), "batches", r.progress.Batches, "upgraded", r.progress.Upgraded)
	return r.result(), nil
}

// step waits while the run is held, or else upgrades one batch.
func (r *run) step(ctx workflow.Context) error {
	if r.hold != nil {
		return r.stayHeld(ctx)
	}
	r.woken = false
	next, answered, err := r.nextBatch(ctx)
	if err != nil || !answered {
		return err
	}
	if next.Counts.Migrating > 0 {
		r.migrate(ctx)
	}
	if next.Counts.Migrated > 0 {
		r.wakeMigration(ctx)
	}
	if len(next.FalseConditions) > 0 {
		if err := r.writeConditions(ctx, next.FalseConditions); err != nil || len(next.Pods) == 0 {
			return err
		}
	}
	if len(next.TrueConditions) > 0 && !r.conditions.running {
		r.writeConditionsLater(ctx, next.TrueConditions)
	}
	return r.follow(ctx, next)
}

// follow does what a plan says.
func (r *run) follow(ctx workflow.Context, next protocol.NextBatchResult) error {
	switch {
	case len(next.Pods) > 0:
		return r.upgradeBatch(ctx, next)
	case next.Phase == protocol.PhaseSuperseded:
		r.newest = next.Generation
	case next.Phase == protocol.PhasePaused:
		return r.awaitSignal(ctx, next.Message)
	case next.Phase == protocol.PhaseWaiting && !r.conditions.running:
		return r.sleep(ctx, longestSleep, next.Message)
	case next.Phase == protocol.PhaseWaiting:
		// Pods may move before the conditions are written.
	case r.conditions.running:
		return workflow.Await(ctx, func() bool { return !r.conditions.running || r.hasSignals() })
	case next.Phase.Ended():
		// A signal that came with the answer may want more.
		r.ended = !r.hasSignals() && !r.conditions.omitted
	}
	return nil
}
