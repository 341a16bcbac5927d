package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// handlePermits sets the handler of the update permit, by which a member of a fleet gives a run the
// permit for its content (SPEC §12.5). The operator mirrors the memo in status.
func (r *run) handlePermits(ctx workflow.Context) error {
	err := workflow.SetUpdateHandler(ctx, protocol.PermitUpdate, func(ctx workflow.Context, permit protocol.Permit) (protocol.StepResult, error) {
		r.progress.Permit, r.updated = &permit, true
		r.log(ctx).Info("rollout permitted", "hash", permit.Hash, "stage", permit.Stage)
		if err := workflow.UpsertMemo(ctx, map[string]any{protocol.PermitMemo: permit}); err != nil {
			return protocol.StepResult{}, fmt.Errorf("write the memo %s: %w", protocol.PermitMemo, err)
		}
		return protocol.StepResult{Message: "permitted"}, nil
	})
	if err != nil {
		return fmt.Errorf("answer the update %s: %w", protocol.PermitUpdate, err)
	}
	return nil
}
