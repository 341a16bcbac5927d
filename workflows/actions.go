package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// maxActions limits the answers to RolloutActions that a run passes to the next run. The operator retries a
// RolloutAction for at most ten minutes.
const maxActions = 100

// Temporal deduplicates the updates of only one run. If the result of a RolloutAction is lost, the operator
// retries the update, and the retry may reach the next run. The run therefore passes the answers to the next run.

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

// setHandler sets the handler of an update, and the validator check.
func setHandler[Payload, Result any](ctx workflow.Context, name string, do func(workflow.Context, Payload) (Result, error), check func(workflow.Context, Payload) error) error {
	if err := workflow.SetUpdateHandlerWithOptions(ctx, name, do, workflow.UpdateHandlerOptions{Validator: check}); err != nil {
		return fmt.Errorf("answer the update %s: %w", name, err)
	}
	return nil
}

// handleAction sets the handler of an update that may carry out a RolloutAction. The handler calls do, and
// returns the earlier answer to the retry of a RolloutAction. result converts a message to the result of the
// update.
func handleAction[Payload, Result any](ctx workflow.Context, r *run, name string, result func(message string) Result, do func(workflow.Context, Payload) (string, error), check func(workflow.Context, Payload) error) error {
	return setHandler(ctx, name, func(ctx workflow.Context, payload Payload) (Result, error) {
		message, known := r.answerToAction(ctx)
		if known {
			return result(message), nil
		}
		message, err := do(ctx, payload)
		if err == nil {
			r.rememberAction(ctx, message)
		}
		return result(message), err
	}, unlessKnown(r, check))
}

func stepResult(message string) protocol.StepResult { return protocol.StepResult{Message: message} }

func (r *run) pauseResult(message string) protocol.PauseResult {
	return protocol.PauseResult{Paused: r.paused != nil, Message: message}
}

// unlessKnown returns a validator that calls check, and accepts the retry of a RolloutAction without a check,
// because the handler only returns the earlier answer.
func unlessKnown[Payload any](r *run, check func(workflow.Context, Payload) error) func(workflow.Context, Payload) error {
	return func(ctx workflow.Context, payload Payload) error {
		if _, known := r.answerToAction(ctx); known {
			return nil
		}
		return check(ctx, payload)
	}
}
