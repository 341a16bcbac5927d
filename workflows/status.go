package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// show makes a phase visible: to the query, in the UI's current details, and,
// when people search by it, in the search attributes.
func (r *run) show(ctx workflow.Context, phase protocol.Phase, message string) error {
	r.phase, r.message = phase, message
	workflow.SetCurrentDetails(ctx, r.details())
	if phase == protocol.PhaseWaiting {
		// Waiting comes and goes with every batch and would only fill history.
		phase = protocol.PhaseProgressing
	}
	return r.upsertSearchAttributes(ctx, phase)
}

// upsertSearchAttributes has the run found by a phase, and by its set.
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
		Phase: r.phase, Message: r.message, Hold: r.hold, Counts: r.counts,
		Batches: r.progress.Batches, Upgraded: r.progress.Upgraded, Failed: r.progress.Failed,
		Since: r.since,
	}, nil
}
