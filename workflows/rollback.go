package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

var errNotQuarantined = errors.New("the rollout is not rolled back")

// stopFailing rolls a failed rollout back, or pauses it (SPEC §11.6).
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

// stageForNext returns the stage for the run of the next generation. A quarantine and an abort outlive
// the generation, because the next generation may have the same content. The signal of the operator may
// contain a quarantine that this run has ended, because status does not show the retry yet.
func (r *run) stageForNext() *protocol.Stage {
	own, signalled := r.progress.Stage, r.newest.Stage
	switch {
	case own == nil:
		return signalled
	case own.Quarantine != nil, own.Aborted != nil && own.Hash != "":
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

// abort requests the rollback of the rollout. It ends a pause, because a paused run upgrades no pod.
func (r *run) abort(ctx workflow.Context, request protocol.StepRequest) (protocol.StepResult, error) {
	if err := r.readSignalsBefore(ctx, false); err != nil {
		return protocol.StepResult{}, err
	}
	aborted := protocol.Stage{Generation: r.input.Generation}
	if r.progress.Stage != nil {
		aborted = *r.progress.Stage
	}
	aborted.Aborted = &request.Approval
	r.progress.Stage = &aborted
	r.log(ctx).Warn("rollout aborted", "by", request.By, "reason", request.Reason)
	if r.paused != nil {
		if err := r.resume(ctx, protocol.Pause{By: request.By, Reason: request.Reason}); err != nil {
			return protocol.StepResult{}, err
		}
	}
	return protocol.StepResult{Message: fmt.Sprintf("generation %d is aborted; its pods go back to the revision whose rollout ended last", r.input.Generation)}, r.recordStage(ctx)
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

// retry ends the quarantine. The rollout begins again with its first step.
func (r *run) retry(ctx workflow.Context, request protocol.StepRequest) (protocol.StepResult, error) {
	r.progress.Stage, r.updated = &protocol.Stage{Generation: r.input.Generation, Policy: r.progress.Stage.Policy}, true
	r.log(ctx).Info("rollout retried", "by", request.By, "reason", request.Reason)
	return protocol.StepResult{Message: fmt.Sprintf("the rollout of generation %d begins again", r.input.Generation)}, r.recordStage(ctx)
}

func (r *run) checkGeneration(request protocol.StepRequest) error {
	if request.Generation != r.input.Generation {
		return fmt.Errorf("the request is for generation %d, and the run has generation %d", request.Generation, r.input.Generation)
	}
	return nil
}
