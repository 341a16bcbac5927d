package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// show publishes a phase in the status query, in the current details of the UI, and in the search attributes.
func (r *run) show(ctx workflow.Context, phase protocol.Phase, message string) error {
	if phase == protocol.PhaseStepReached {
		return nil // awaitStep shows the reason for the wait
	}
	r.phase, r.message = phase, message
	workflow.SetCurrentDetails(ctx, r.details())
	if phase == protocol.PhaseWaiting {
		// The phase changes between Waiting and Progressing with every batch, and each write of the search
		// attribute adds an event to the history. Therefore, only a sleeping run has the attribute Waiting, and
		// keeps the attribute while the run checks the cluster between two sleeps.
		if r.shown == protocol.PhaseWaiting {
			return nil
		}
		phase = protocol.PhaseProgressing
	}
	return r.upsertSearchAttributes(ctx, phase)
}

// upsertSearchAttributes writes the phase. The first call also writes the SidecarSet and the
// generation.
func (r *run) upsertSearchAttributes(ctx workflow.Context, phase protocol.Phase) error {
	if phase == r.shown {
		return nil
	}
	updates := []temporal.SearchAttributeUpdate{
		temporal.NewSearchAttributeKeyKeyword(protocol.RolloutPhaseAttribute).ValueSet(string(phase)),
	}
	if r.shown == "" {
		updates = append(updates,
			temporal.NewSearchAttributeKeyKeyword(protocol.SidecarSetAttribute).ValueSet(r.input.SidecarSet.Name),
			temporal.NewSearchAttributeKeyInt64(protocol.GenerationAttribute).ValueSet(r.input.Generation))
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		return fmt.Errorf("write search attributes: %w", err)
	}
	r.shown = phase
	return nil
}

func (r *run) status() (protocol.RolloutStatus, error) {
	return protocol.RolloutStatus{
		SidecarSet: r.input.SidecarSet, Generation: r.input.Generation,
		Phase: r.phase, Message: r.message, Pause: r.paused, Counts: r.counts,
		Batches: r.progress.Batches, Upgraded: r.progress.Upgraded, RejectedWrites: r.progress.RejectedWrites,
		Since: r.since, Stage: r.progress.Stage, Permit: r.progress.Permit, FleetFault: r.fleetFault,
	}, nil
}
