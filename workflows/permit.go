package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// handlePermits sets the handler of the update permit, by which a member of a fleet, or a user, gives a run
// the permit for its content (SPEC §12.5, §12.6). The run writes the permit to the memo, and the operator
// copies the permit from the memo to status.
func (r *run) handlePermits(ctx workflow.Context) error {
	return handleAction(ctx, r, protocol.PermitUpdate, stepResult, func(ctx workflow.Context, permit protocol.Permit) (string, error) {
		permit.NotAfter = time.Time{} // NotAfter belongs to the request
		r.progress.Permit, r.updated = &permit, true
		r.log(ctx).Info("rollout permitted", "hash", permit.Hash, "stage", permit.Stage, "by", permit.By, "reason", permit.Reason)
		return "permitted", writeMemo(ctx, protocol.PermitMemo, permit)
	}, r.checkPermit)
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
