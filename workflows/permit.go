package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// handlePermits sets the handler of the update permit, by which a member of a fleet, or a user, gives a run
// the permit for its content (SPEC §12.5, §12.6). The run writes the permit to the memo, and the operator
// copies the permit from the memo to status.
func (r *run) handlePermits(ctx workflow.Context) error {
	permit := func(ctx workflow.Context, permit protocol.Permit) (protocol.StepResult, error) {
		if message, known := r.answerToAction(ctx); known {
			return protocol.StepResult{Message: message}, nil
		}
		permit.NotAfter = time.Time{} // NotAfter belongs to the request
		r.progress.Permit, r.updated = &permit, true
		r.log(ctx).Info("rollout permitted", "hash", permit.Hash, "stage", permit.Stage, "by", permit.By, "reason", permit.Reason)
		if err := workflow.UpsertMemo(ctx, map[string]any{protocol.PermitMemo: permit}); err != nil {
			return protocol.StepResult{}, fmt.Errorf("write the memo %s: %w", protocol.PermitMemo, err)
		}
		r.rememberAction(ctx, "permitted")
		return protocol.StepResult{Message: "permitted"}, nil
	}
	err := workflow.SetUpdateHandlerWithOptions(ctx, protocol.PermitUpdate, permit, workflow.UpdateHandlerOptions{Validator: unlessKnown(r, r.checkPermit)})
	if err != nil {
		return fmt.Errorf("answer the update %s: %w", protocol.PermitUpdate, err)
	}
	return nil
}

// checkPermit rejects a permit that arrives after NotAfter, and a permit of a user if the run has a permit
// for the same content.
func (r *run) checkPermit(ctx workflow.Context, permit protocol.Permit) error {
	if err := checkTime(ctx, permit.NotAfter); err != nil {
		return err
	}
	if has := r.progress.Permit; permit.By != "" && has != nil && has.Hash == permit.Hash {
		return errors.New("the rollout has a permit")
	}
	return nil
}
