package workflows

import (
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// maxActions limits the answers to RolloutActions that a run passes to the next run. The operator retries an
// action for at most ten minutes.
const maxActions = 100

// Temporal recognizes a retried update only within one run. If the answer to a RolloutAction is lost, the
// operator retries the update, and the retry may reach the next run. The run therefore passes the answers to
// the next run.

// answerToAction returns the earlier answer if the current update is the retry of a RolloutAction. known
// reports whether such an answer exists.
func (r *run) answerToAction(ctx workflow.Context) (message string, known bool) {
	id := workflow.GetCurrentUpdateInfo(ctx).ID
	for _, answer := range r.progress.Actions {
		if answer.UpdateID == id {
			return answer.Message, true
		}
	}
	return "", false
}

// rememberAction records the answer to the current update if the update carries out a RolloutAction.
func (r *run) rememberAction(ctx workflow.Context, message string) {
	id := workflow.GetCurrentUpdateInfo(ctx).ID
	if !strings.HasPrefix(id, protocol.ActionUpdatePrefix) {
		return
	}
	r.progress.Actions = append(r.progress.Actions, protocol.ActionAnswer{UpdateID: id, Message: message})
	r.progress.Actions = r.progress.Actions[max(len(r.progress.Actions)-maxActions, 0):]
}

// onceStep returns a handler that calls do, and answers the retry of a RolloutAction with the earlier answer.
func (r *run) onceStep(do func(workflow.Context, protocol.StepRequest) (protocol.StepResult, error)) func(workflow.Context, protocol.StepRequest) (protocol.StepResult, error) {
	return func(ctx workflow.Context, request protocol.StepRequest) (protocol.StepResult, error) {
		if message, known := r.answerToAction(ctx); known {
			return protocol.StepResult{Message: message}, nil
		}
		result, err := do(ctx, request)
		if err == nil {
			r.rememberAction(ctx, result.Message)
		}
		return result, err
	}
}

// oncePause returns a handler like onceStep, for the updates pause and resume.
func (r *run) oncePause(do func(workflow.Context, protocol.Pause) (protocol.PauseResult, error)) func(workflow.Context, protocol.Pause) (protocol.PauseResult, error) {
	return func(ctx workflow.Context, pause protocol.Pause) (protocol.PauseResult, error) {
		if message, known := r.answerToAction(ctx); known {
			return protocol.PauseResult{Paused: r.paused != nil, Message: message}, nil
		}
		result, err := do(ctx, pause)
		if err == nil {
			r.rememberAction(ctx, result.Message)
		}
		return result, err
	}
}

// unlessKnown returns a validator that calls check, and accepts the retry of a RolloutAction without a check,
// because the retry only gets the earlier answer.
func unlessKnown[Payload any](r *run, check func(workflow.Context, Payload) error) func(workflow.Context, Payload) error {
	return func(ctx workflow.Context, payload Payload) error {
		if _, known := r.answerToAction(ctx); known {
			return nil
		}
		return check(ctx, payload)
	}
}
