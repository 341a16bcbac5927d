package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// adoptStage records the stage that a plan used. asked is the stage of the run when the plan was requested. valid
// is false if an update has changed the stage since the request, so that the plan is obsolete. A worker of an
// earlier release omits the hash of a stage, so a missing hash does not count as a change.
func (r *run) adoptStage(ctx workflow.Context, asked, used *protocol.Stage) (valid bool, err error) {
	switch {
	case r.progress.Stage != asked:
		return false, nil
	case used == nil, asked != nil && !asked.Accept && asked.Generation == r.input.Generation && (used.Hash == "" || asked.Hash == used.Hash) && (asked.Step != nil || asked.Done || asked.Quarantine != nil):
		return true, nil
	}
	r.progress.Stage = used
	return true, r.recordStage(ctx)
}

// awaitStep waits until the next step may begin (SPEC §11.3). The bake time is a timer of the workflow, so a
// restart of a process does not stop the timer. During the wait, the run upgrades no pod.
func (r *run) awaitStep(ctx workflow.Context) error {
	s := r.progress.Stage
	if s.Reached == nil {
		s.Reached = new(workflow.Now(ctx))
		if s.Step.Bake > 0 || s.Step.Approval || len(s.Step.Gates) > 0 {
			r.log(ctx).Info("step reached", "step", s.Title(), "bake", s.Step.Bake.String(), "approval", s.Step.Approval)
			if err := r.recordStage(ctx); err != nil {
				return err
			}
		}
	}
	now := workflow.Now(ctx)
	phase, message := s.Wait(now)
	if phase == protocol.PhaseProgressing {
		return r.beginNextStep(ctx)
	}
	if phase == protocol.PhaseGateRunning {
		return r.awaitGate(ctx)
	}
	if err := r.show(ctx, phase, message); err != nil {
		return err
	}
	wait := r.untilFailure(checkInterval)
	if phase != protocol.PhaseAwaitingApproval {
		wait = min(s.BakeEnd().Sub(now), wait)
	}
	return r.awaitSignalFor(ctx, wait, message)
}

// beginNextStep ends the current step. The next plan then reads the next step from the policy.
func (r *run) beginNextStep(ctx workflow.Context) error {
	r.log(ctx).Info("step ended", "step", r.progress.Stage.Title())
	r.progress.Stage = r.progress.Stage.Next()
	return r.recordStage(ctx)
}

// pauseFailing pauses a rollout that has failed (SPEC §11.6).
func (r *run) pauseFailing(ctx workflow.Context, failure *protocol.Failure) error {
	failing := *r.progress.Stage
	failing.Failed = &failure.Pods
	r.progress.Stage = &failing
	return r.pause(ctx, protocol.PauseByPolicy(r.progress.Stage.Policy, failure.Reason))
}

// acceptFailed makes the next plan accept the pods that failed before the resume of a paused run (SPEC 11.6.5).
// The plan determines these pods, because more pods may have failed since the pause.
func (r *run) acceptFailed(ctx workflow.Context) error {
	s := r.progress.Stage
	if r.paused == nil || s == nil || s.Done || s.Accept || s.Quarantine != nil {
		return nil
	}
	resumed := *s
	resumed.Accept = true
	measureAgain(&resumed, r.paused.ByPolicy())
	r.progress.Stage = &resumed
	return r.recordStage(ctx)
}

// recordStage writes the stage to the memo of the run. The operator copies the stage from the memo to status,
// in case the run is lost. A run without a RolloutPolicy never writes this memo.
func (r *run) recordStage(ctx workflow.Context) error {
	return writeMemo(ctx, protocol.StageMemo, *r.progress.Stage)
}

// writeMemo writes a value to a memo of the run. The value nil removes the memo.
func writeMemo(ctx workflow.Context, name string, value any) error {
	if err := workflow.UpsertMemo(ctx, map[string]any{name: value}); err != nil {
		return fmt.Errorf("write the memo %s: %w", name, err)
	}
	return nil
}

// handleStepUpdates sets the handlers of the updates approve, promote, abort and retry.
func (r *run) handleStepUpdates(ctx workflow.Context) error {
	for _, update := range []struct {
		name  string
		do    func(workflow.Context, protocol.StepRequest) (string, error)
		check func(protocol.StepRequest) error
	}{
		{protocol.ApproveUpdate, r.approve, r.checkStep},
		{protocol.PromoteUpdate, r.promote, r.checkStep},
		{protocol.AbortUpdate, r.abort, r.checkAbort},
		{protocol.RetryUpdate, r.retry, r.checkRetry},
	} {
		if err := handleAction(ctx, r, update.name, stepResult, update.do, inTime(update.check)); err != nil {
			return err
		}
	}
	return r.handlePermits(ctx)
}

// inTime returns a validator that calls check, and rejects a request that arrives after NotAfter.
func inTime(check func(protocol.StepRequest) error) func(workflow.Context, protocol.StepRequest) error {
	return func(ctx workflow.Context, request protocol.StepRequest) error {
		if err := checkTime(ctx, request.NotAfter); err != nil {
			return err
		}
		return check(request)
	}
}

// checkTime returns an error if the current time is after notAfter, because the sender of the update then no
// longer waits for the result.
func checkTime(ctx workflow.Context, notAfter time.Time) error {
	if !notAfter.IsZero() && workflow.Now(ctx).After(notAfter) {
		return temporal.NewApplicationError("the request is from before "+notAfter.UTC().Format(time.RFC3339)+", and comes too late", protocol.LateRequest)
	}
	return nil
}

// checkStep rejects a request for a step other than the current step.
func (r *run) checkStep(request protocol.StepRequest) error {
	s := r.progress.Stage
	if err := r.checkGeneration(request); err != nil {
		return err
	}
	switch {
	case s == nil:
		return fmt.Errorf("the rollout of generation %d has no steps", r.input.Generation)
	case s.Aborted != nil:
		return fmt.Errorf("the rollout of generation %d is aborted", r.input.Generation)
	case s.Steps == 0 && s.Quarantine == nil && !s.Done: // the next plan reads the steps
		return fmt.Errorf("the first step of generation %d has not begun; try again", r.input.Generation)
	case s.Quarantine != nil:
		return fmt.Errorf("the rollout of generation %d is rolled back; start it again: kubectl sidecarset retry %s", r.input.Generation, r.input.SidecarSet.Name)
	case s.Done:
		return fmt.Errorf("all steps of generation %d have ended", r.input.Generation)
	case request.Step != s.Index:
		return fmt.Errorf("the request is for step %d, and the current step is %s", request.Step+1, s.Title())
	}
	return checkPause(protocol.Pause{By: request.By, Reason: request.Reason})
}

func (r *run) approve(ctx workflow.Context, request protocol.StepRequest) (string, error) {
	s := r.progress.Stage
	switch {
	case s.Step == nil:
		return "", fmt.Errorf("%s has not begun; try again", s.Title())
	case !s.Step.Approval:
		return s.Title() + " needs no approval", nil
	case s.Approval != nil:
		return s.Title() + " is approved already" + detailsOf(*s.Approval), nil
	}
	approved := *s
	approved.Approval = &request.Approval
	r.progress.Stage, r.updated = &approved, true
	r.log(ctx).Info("step approved", "step", s.Title(), "by", request.By, "reason", request.Reason)
	return s.Title() + " is approved", r.recordStage(ctx)
}

// promote ends the current step without the bake time, the gates and the approval of the step. If Full is set
// in request, promote ends all steps.
func (r *run) promote(ctx workflow.Context, request protocol.StepRequest) (string, error) {
	s := *r.progress.Stage
	r.updated = true
	r.log(ctx).Info("step promoted", "step", s.Title(), "full", request.Full, "by", request.By, "reason", request.Reason)
	next := s.Next()
	message := s.Title() + " ended; the next step begins"
	switch {
	case request.Full:
		next.Index, next.Done, message = s.Index, true, "all steps ended; the rollout upgrades all remaining pods"
	case next.Index >= next.Steps:
		// The other limits of the policy still apply, so the next plan reads these limits.
		message = s.Title() + " ended; the rollout upgrades all remaining pods within the other limits of the policy"
	}
	resumes := r.pausedByGate()
	r.progress.Stage = next
	if resumes {
		// The run was paused because of gates that the promotion skips.
		r.paused, next.Failed = nil, nil
		if err := r.recordPause(ctx, &protocol.Pause{By: request.By, Reason: request.Reason}); err != nil {
			return "", err
		}
	}
	return message, r.recordStage(ctx)
}

func detailsOf(approval protocol.Approval) string {
	return protocol.Pause{By: approval.By, Reason: approval.Reason}.Details()
}
