package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// maxHoldText bounds who and why: both are shown in a condition.
const maxHoldText = 1024

// handleUpdates answers pause and resume as updates. Signals do the same without
// an answer.
func (r *run) handleUpdates(ctx workflow.Context) error {
	err := workflow.SetUpdateHandlerWithOptions(ctx, protocol.PauseUpdate,
		func(ctx workflow.Context, hold protocol.Hold) (protocol.HoldResult, error) {
			r.updated = true
			return r.answerHold(), r.pause(ctx, hold)
		},
		workflow.UpdateHandlerOptions{Validator: checkHold})
	if err != nil {
		return fmt.Errorf("answer the update %s: %w", protocol.PauseUpdate, err)
	}
	err = workflow.SetUpdateHandlerWithOptions(ctx, protocol.ResumeUpdate,
		func(ctx workflow.Context, by protocol.Hold) (protocol.HoldResult, error) {
			r.updated = true
			return protocol.HoldResult{Message: "resumed"}, r.resume(ctx, by)
		},
		workflow.UpdateHandlerOptions{Validator: func(by protocol.Hold) error {
			if r.hold == nil {
				return errors.New("the run is not paused")
			}
			return checkHold(by)
		}})
	if err != nil {
		return fmt.Errorf("answer the update %s: %w", protocol.ResumeUpdate, err)
	}
	return nil
}

func checkHold(hold protocol.Hold) error {
	if len(hold.Who) > maxHoldText || len(hold.Why) > maxHoldText {
		return fmt.Errorf("who and why may have %d bytes each", maxHoldText)
	}
	return nil
}

// answerHold says what a pause means for what is under way.
func (r *run) answerHold() protocol.HoldResult {
	message := "paused"
	switch {
	case r.upgrading:
		message += "; the batch in hand ends first"
	case r.migration.running:
		message += "; hot upgrades that have begun are finished"
	}
	return protocol.HoldResult{Held: true, Message: message}
}

func (r *run) pause(ctx workflow.Context, hold protocol.Hold) error {
	r.hold = &hold
	r.log(ctx).Info("rollout paused", "who", hold.Who, "why", hold.Why)
	return r.noteHold(ctx, nil)
}

func (r *run) resume(ctx workflow.Context, by protocol.Hold) error {
	r.hold = nil
	r.log(ctx).Info("rollout resumed", "who", by.Who, "why", by.Why)
	return r.noteHold(ctx, &by)
}

// noteHold writes the hold, or who ended it, to the run's memo, where the operator
// reads it: it keeps the hold for the case that this run is lost. Replays compare
// no content of memos, which may be encrypted, so that more may be written here.
func (r *run) noteHold(ctx workflow.Context, ended *protocol.Hold) error {
	if workflow.GetVersion(ctx, "hold in the memo", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return nil
	}
	// What is nil is removed.
	memo := map[string]any{protocol.HoldMemo: nil, protocol.ResumeMemo: nil}
	if r.hold != nil {
		memo[protocol.HoldMemo] = *r.hold
	}
	if ended != nil {
		memo[protocol.ResumeMemo] = *ended
	}
	if err := workflow.UpsertMemo(ctx, memo); err != nil {
		return fmt.Errorf("write the memos %s and %s: %w", protocol.HoldMemo, protocol.ResumeMemo, err)
	}
	return nil
}

// stayHeld waits, paused, until a signal comes. One that is not about the
// pause has the run look whether there is still something to hold.
func (r *run) stayHeld(ctx workflow.Context) error {
	if !r.woken {
		message := "paused by signal" + r.heldBy()
		if err := r.show(ctx, protocol.PhasePaused, message); err != nil {
			return err
		}
		return r.awaitSignal(ctx, message)
	}
	r.woken = false
	next, answered, err := r.nextBatch(ctx)
	if err != nil || !answered {
		return err
	}
	switch {
	case next.Phase == protocol.PhaseSuperseded:
		r.newest = next.Generation
	case next.Phase.Ended():
		r.ended = true
	case next.Counts.Migrating > 0:
		r.migrate(ctx)
	}
	return nil
}

// heldBy says who holds the run, and why, as far as that is known.
func (r *run) heldBy() (text string) {
	if r.hold.Who != "" {
		text = " from " + r.hold.Who
	}
	if r.hold.Why != "" {
		text += ": " + r.hold.Why
	}
	return text
}
