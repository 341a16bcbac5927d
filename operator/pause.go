package operator

import (
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/operator/runs"
)

// pauseOf returns the pause of the newest run. known is false if run does not show whether the rollout is
// paused, for example because run was terminated. In this case, status keeps the pause, and the next run
// starts with the pause in status.
func pauseOf(set *v1alpha1.SidecarSet, run *runs.Run) (pause *v1alpha1.RolloutPause, known bool) {
	if run.Pause != nil {
		return &v1alpha1.RolloutPause{By: run.Pause.By, Reason: run.Pause.Reason}, true
	}
	if run.GenerationMismatch(set) || !run.Open() && !run.Completed() {
		return nil, false
	}
	if pauseLost(set, run) {
		return nil, false
	}
	if run.Phase != protocol.PhasePaused {
		return nil, true
	}
	// Runs of earlier versions have no memo with the pause. If the run is paused and the spec is not paused,
	// the run was paused by signal.
	before := set.Status.Rollout.Pause
	switch {
	case set.Spec.UpdateStrategy.Paused:
		return nil, before != nil && *before != v1alpha1.RolloutPause{}
	case before != nil:
		return before, true
	}
	return &v1alpha1.RolloutPause{}, true
}

// pauseLost reports whether the run of the generation has lost the pause in status, because Temporal was
// restored from a backup. Such a run has neither the pause nor a resume. A paused run of an earlier version has
// no memo, but has PhasePaused.
func pauseLost(set *v1alpha1.SidecarSet, run *runs.Run) bool {
	rollout := set.Status.Rollout
	return rollout != nil && rollout.Pause != nil && rollout.Generation == set.Generation && (run.Open() || run.Completed()) && !run.GenerationMismatch(set) &&
		run.Pause == nil && run.Resumed == nil && run.Phase != protocol.PhasePaused
}

// quarantineLost reports whether the run of the generation has lost the quarantine in status, because Temporal
// was restored from a backup. A quarantine that a user has ended by a retry is not lost. The retry of a later
// rollback also ends the quarantine. A stage without a hash was written by an older worker, and does not show
// retries, so quarantineLost returns false for a stage without a hash.
func quarantineLost(set *v1alpha1.SidecarSet, run *runs.Run) bool {
	q := stage.QuarantineOf(set)
	if q == nil || set.Status.Rollout.Generation != set.Generation || run.GenerationMismatch(set) {
		return false
	}
	s := run.Stage
	// The time in status is truncated to seconds.
	return s == nil || s.Quarantine == nil && s.Hash != "" && s.Retried.Truncate(time.Second).Before(q.Since.Time)
}

// signalOf returns pause as the payload of the pause signal.
func signalOf(pause *v1alpha1.RolloutPause) protocol.Pause {
	return protocol.Pause{By: pause.By, Reason: pause.Reason}
}

// lastPause returns the result of pauseOf for run, whose generation is the generation in status or a later
// generation. If run was started after the last write of status, run may have the current generation.
func lastPause(set *v1alpha1.SidecarSet, run *runs.Run) (pause *v1alpha1.RolloutPause, known bool) {
	at := set.DeepCopy()
	at.Generation = max(set.Status.Rollout.Generation, min(run.Generation, set.Generation))
	if run.Pause == nil && run.Phase == protocol.PhasePaused && !run.GenerationMismatch(at) {
		// The spec was paused in the generation of the run, so PhasePaused does not indicate a pause by
		// signal. Only a resume changes the pause in status.
		return nil, run.Resumed != nil
	}
	return pauseOf(at, run)
}

// pauseForStart returns the pause with which a run is started. If the pause of the newest run is not known,
// pauseForStart returns the pause in status.
func (p *pass) pauseForStart() *v1alpha1.RolloutPause {
	if p.out.pauseKnown {
		return p.out.pause
	}
	return p.pause
}
