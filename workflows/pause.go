package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// resumed is the message of the answer to a resume.
const resumed = "resumed"

var errNotPaused = errors.New(protocol.NotPaused)

// handleUpdates sets the handlers of the updates pause and resume. The signals pause and resume have the same
// effect, but return no result.
func (r *run) handleUpdates(ctx workflow.Context) error {
	return cmp.Or(
		handleAction(ctx, r, protocol.PauseUpdate, r.pauseResult, func(ctx workflow.Context, pause protocol.Pause) (string, error) {
			if err := r.readSignalsBefore(ctx, pause.Sent); err != nil || pause.Sent {
				return r.answer(), err
			}
			return r.answerPause(), r.pause(ctx, pause)
		}, func(ctx workflow.Context, pause protocol.Pause) error {
			return cmp.Or(checkTime(ctx, pause.NotAfter), checkPause(pause))
		}),
		handleAction(ctx, r, protocol.ResumeUpdate, r.pauseResult, func(ctx workflow.Context, by protocol.Pause) (string, error) {
			if err := r.readSignalsBefore(ctx, by.Sent); err != nil {
				return "", err
			}
			if by.Sent && r.paused == nil && !r.resumed {
				return "", errNotPaused
			}
			if by.Sent {
				return r.answer(), nil
			}
			return resumed, r.resume(ctx, by)
		}, func(ctx workflow.Context, by protocol.Pause) error {
			if err := checkTime(ctx, by.NotAfter); err != nil {
				return err
			}
			if !by.Sent && !r.willBePaused() {
				return errNotPaused
			}
			return checkPause(by)
		}))
}

// readSignalsBefore reads the signals that arrived before an update. If sent is set, the update only requests the
// result of an earlier signal, and does not pause or resume the run itself.
func (r *run) readSignalsBefore(ctx workflow.Context, sent bool) error {
	changed := !sent || r.hasSignals()
	err := r.readSignals(ctx)
	r.updated = changed
	return err
}

func checkPause(pause protocol.Pause) error {
	if pause != pause.Bounded() {
		return fmt.Errorf("the name and the reason may have %d bytes each", protocol.MaxPauseText)
	}
	return nil
}

// answer returns the message for an update that requests the result of an earlier signal.
func (r *run) answer() string {
	if r.paused == nil {
		return resumed
	}
	return r.answerPause()
}

// answerPause returns the message of the answer to a pause. The message describes the effect of the pause on a
// running batch or migration.
func (r *run) answerPause() string {
	message := "paused"
	switch {
	case r.upgrading:
		message += "; the running batch stops within seconds"
	case r.migration.running:
		message += "; hot upgrades that have begun are finished"
	}
	return message
}

func (r *run) pause(ctx workflow.Context, pause protocol.Pause) error {
	pause = pause.Bounded()
	pause.NotAfter = time.Time{} // NotAfter belongs to the request, and not to the pause
	pause.At = workflow.Now(ctx).UTC()
	r.paused = &pause
	r.log(ctx).Info("rollout paused", "by", pause.By, "reason", pause.Reason)
	return r.recordPause(ctx, nil)
}

func (r *run) resume(ctx workflow.Context, by protocol.Pause) error {
	if err := r.acceptFailed(ctx); err != nil {
		return err
	}
	by = by.Bounded()
	by.NotAfter = time.Time{}
	r.paused = nil
	r.log(ctx).Info("rollout resumed", "by", by.By, "reason", by.Reason)
	return r.recordPause(ctx, &by)
}

// recordPause writes the pause of the run, and the resume in ended, to the memo of the run. The operator copies
// the pause from the memo to status, in case the run is lost. A replay does not compare the content of memos,
// because the content may be encrypted. New fields in the memo therefore do not break a replay.
func (r *run) recordPause(ctx workflow.Context, ended *protocol.Pause) error {
	// A nil value removes the memo.
	memo := map[string]any{protocol.PauseMemo: nil, protocol.ResumeMemo: nil}
	if r.paused != nil {
		memo[protocol.PauseMemo] = *r.paused
	}
	if ended != nil {
		memo[protocol.ResumeMemo] = *ended
	}
	if err := workflow.UpsertMemo(ctx, memo); err != nil {
		return fmt.Errorf("write the memos %s and %s: %w", protocol.PauseMemo, protocol.ResumeMemo, err)
	}
	return nil
}

// stayPaused waits until a signal arrives. After a signal other than pause and resume, the run checks whether
// pods remain to be upgraded. After an abort, the run records the quarantine during the pause, and writes pods
// only after the resume.
func (r *run) stayPaused(ctx workflow.Context) error {
	aborted := r.abortedBeforePause(ctx)
	if !r.woken && !aborted {
		message := r.paused.Sentence()
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
		r.newest = protocol.GenerationInput{Generation: next.Generation, Stage: next.Stage}
	case aborted && next.Failure != nil:
		r.woken = true // the next plan notifies the operator of the quarantine
		return r.stopFailing(ctx, next.Failure)
	case next.Phase.Ended():
		r.ended = true
	case next.Counts.Migrating > 0:
		r.followMigration(ctx, next.Counts)
	}
	if aborted && next.Phase == protocol.PhasePaused {
		return r.awaitSignal(ctx, next.Message) // a worker of an earlier release has made the plan
	}
	return nil
}

// abortedBeforePause reports whether a paused run still has to record the quarantine of an abort, because the
// pause arrived before the plan that follows the abort.
func (r *run) abortedBeforePause(ctx workflow.Context) bool {
	s := r.progress.Stage
	return s != nil && s.Aborted != nil && workflow.GetVersion(ctx, "roll back a paused run", workflow.DefaultVersion, 1) > workflow.DefaultVersion
}
