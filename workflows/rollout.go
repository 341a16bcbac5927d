package workflows

import (
	"cmp"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// Rollout upgrades the pods of a SidecarSet to one generation, batch after batch, until the rollout has ended
// or another generation supersedes the generation of the run.
//
// The run handles the signals generation, pause and resume, and the query status. pause and resume are also
// updates. The other updates are approve, promote, abort, retry and permit. If the signal generation contains a
// newer generation, the run continues as new. If the signal generation contains the generation of the run, the
// signal wakes a sleeping run. A waiting run also checks the cluster every few minutes, because the operator that
// sends the signal may be down.
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
		if r.continueAsNewDue(ctx) {
			return r.continueAsNew(ctx)
		}
		if err := r.step(ctx); err != nil {
			return protocol.RolloutResult{}, err
		}
	}
	r.log(ctx).Info("rollout ended", "phase", string(r.phase), "batches", r.progress.Batches, "upgraded", r.progress.Upgraded)
	return r.result(), nil
}

// step waits if the run is paused. Otherwise, step requests a plan and executes the plan.
func (r *run) step(ctx workflow.Context) error {
	if r.paused != nil {
		r.progress.Stall = nil
		return r.stayPaused(ctx)
	}
	r.woken = false
	next, answered, err := r.nextBatch(ctx)
	if err != nil || !answered {
		return err
	}
	r.fleetFault = next.FleetFault
	r.followMigration(ctx, next.Counts)
	if len(next.FalseConditions) > 0 {
		began := workflow.Now(ctx)
		err := r.writeConditions(ctx, next.FalseConditions)
		r.dropStallAfterOutage(ctx, began, 0)
		if err != nil || len(next.Pods) == 0 {
			return err
		}
	}
	if len(next.TrueConditions) > 0 && !r.conditions.running {
		r.writeConditionsLater(ctx, next.TrueConditions)
	}
	return r.follow(ctx, next)
}

// follow executes a plan. For example, follow upgrades a batch, or waits for a signal.
func (r *run) follow(ctx workflow.Context, next protocol.NextBatchResult) error {
	switch {
	case next.Failure != nil:
		return r.stopFailing(ctx, next.Failure)
	case len(next.Pods) > 0:
		return r.upgradeBatch(ctx, next)
	case next.Phase == protocol.PhaseSuperseded:
		r.newest = protocol.GenerationInput{Generation: next.Generation, Stage: next.Stage}
	case next.Phase == protocol.PhasePaused:
		return r.awaitSignal(ctx, next.Message)
	case next.Phase == protocol.PhaseFrozen:
		return r.awaitThaw(ctx, next)
	case next.Phase == protocol.PhaseStepReached:
		return r.awaitStep(ctx)
	case next.Phase == protocol.PhaseQuarantined:
		return r.awaitSignal(ctx, next.Message)
	case next.Phase == protocol.PhaseWaiting && !r.conditions.running:
		return r.sleep(ctx, next.Message)
	case next.Phase == protocol.PhaseWaiting:
		// The run makes the next plan immediately, because pods may become upgradable while the conditions are
		// written.
	case r.conditions.running:
		return workflow.Await(ctx, func() bool { return !r.conditions.running || r.hasSignals() })
	case next.Phase.Ended():
		// A signal that arrived with the plan may require more upgrades, and an omitted condition may still
		// be outdated.
		r.ended = !r.hasSignals() && !r.conditions.omitted
	}
	return nil
}
