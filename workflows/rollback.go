package workflows

import (
	"cmp"
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

var errNotQuarantined = errors.New("the rollout is not rolled back")

// stopFailing rolls a failed rollout back or pauses the rollout (SPEC §11.6). If failure has no quarantine,
// the rollout is paused.
func (r *run) stopFailing(ctx workflow.Context, failure *protocol.Failure) error {
	failed := *r.progress.Stage
	switch {
	case failure.Quarantine == nil && failed.Aborted != nil:
		by := failed.Aborted.By
		failed.Aborted, r.progress.Stage = nil, &failed
		if err := r.recordStage(ctx); err != nil {
			return err
		}
		return r.pause(ctx, protocol.Pause{By: by, Reason: failure.Reason})
	case failure.Quarantine == nil:
		return r.pauseFailing(ctx, failure)
	}
	quarantine := *failure.Quarantine
	quarantine.Since = workflow.Now(ctx)
	failed.Quarantine, failed.Aborted, failed.Reached, failed.Approval = &quarantine, nil, nil, nil
	failed.Gates = nil
	r.progress.Stage = &failed
	r.log(ctx).Warn("rollout failed; rolling back", "revision", quarantine.Revision, "reason", quarantine.Reason)
	return r.recordStage(ctx)
}

// restoreQuarantine adopts the quarantine of a signal for the generation of the run, unless the run has
// retried the content since. The operator sends such a signal if Temporal was restored to a time before the
// rollback.
func (r *run) restoreQuarantine(ctx workflow.Context, signalled *protocol.Stage) error {
	own := r.progress.Stage
	if signalled == nil || signalled.Quarantine == nil || signalled.Generation != r.input.Generation {
		return nil
	}
	if own != nil && own.Quarantine != nil && r.wakes == 0 {
		return nil // the signal that started the run
	}
	if own != nil && own.HasRetried(signalled.Quarantine.Since) || workflow.GetVersion(ctx, "restore a quarantine", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return nil
	}
	if own != nil && own.Quarantine != nil {
		return r.recordStage(ctx) // the memo may be lost
	}
	r.progress.Stage = signalled
	r.log(ctx).Warn("the rollback continues, because Temporal has lost the start of the rollback", "revision", signalled.Quarantine.Revision)
	return r.recordStage(ctx)
}

// stageForNext returns the stage for the run of the next generation. A quarantine, an abort and a retry also
// apply to the next generation, because the next generation may have the same content. The stage of the run
// takes precedence over the stage of the signal: the signal may contain a quarantine that a retry has ended,
// because status does not show the retry yet.
func (r *run) stageForNext() *protocol.Stage {
	own, signalled := r.progress.Stage, r.newest.Stage
	switch {
	case own == nil:
		return signalled
	case own.Quarantine != nil, own.Hash != "" && (own.Aborted != nil || !own.Retried.IsZero()):
		return own
	case signalled != nil && signalled.Generation != r.newest.Generation:
		return nil
	}
	return signalled
}

// checkAbort rejects an abort of a rollout that is rolled back already.
func (r *run) checkAbort(request protocol.StepRequest) error {
	if err := r.checkGeneration(request); err != nil {
		return err
	}
	if s := r.progress.Stage; s != nil && s.Quarantine != nil {
		return fmt.Errorf("the rollout of generation %d is rolled back already", r.input.Generation)
	}
	return checkPause(protocol.Pause{By: request.By, Reason: request.Reason})
}

// abort requests the rollback of the rollout. abort also ends a pause, because a paused run upgrades no pod.
func (r *run) abort(ctx workflow.Context, request protocol.StepRequest) (string, error) {
	if err := r.readSignalsBefore(ctx, false); err != nil {
		return "", err
	}
	aborted := protocol.Stage{Generation: r.input.Generation}
	if s := r.progress.Stage; s != nil && s.Generation == r.input.Generation {
		aborted = *s
	}
	aborted.Aborted, aborted.Hash = &request.Approval, cmp.Or(aborted.Hash, request.Hash)
	r.progress.Stage = &aborted
	r.log(ctx).Warn("rollout aborted", "by", request.By, "reason", request.Reason)
	if r.paused != nil {
		if err := r.resume(ctx, protocol.Pause{By: request.By, Reason: request.Reason}); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("generation %d is aborted; its pods go back to the revision whose rollout ended last", r.input.Generation), r.recordStage(ctx)
}

// checkRetry rejects a retry of a rollout that is not rolled back.
func (r *run) checkRetry(request protocol.StepRequest) error {
	if err := r.checkGeneration(request); err != nil {
		return err
	}
	if s := r.progress.Stage; s == nil || s.Quarantine == nil {
		return errNotQuarantined
	}
	return checkPause(protocol.Pause{By: request.By, Reason: request.Reason})
}

// retry ends the quarantine. The rollout restarts from the first step.
func (r *run) retry(ctx workflow.Context, request protocol.StepRequest) (string, error) {
	quarantined := r.progress.Stage
	r.progress.Stage, r.updated = &protocol.Stage{
		Generation: r.input.Generation, Hash: quarantined.Quarantine.Hash, Policy: quarantined.Policy, Retried: quarantined.Quarantine.Since,
	}, true
	r.log(ctx).Info("rollout retried", "by", request.By, "reason", request.Reason)
	return fmt.Sprintf("the rollout of generation %d restarts", r.input.Generation), r.recordStage(ctx)
}

func (r *run) checkGeneration(request protocol.StepRequest) error {
	if request.Generation != r.input.Generation {
		return fmt.Errorf("the request is for generation %d, and the run has generation %d", request.Generation, r.input.Generation)
	}
	return nil
}
