package operator

import (
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/operator/runs"
)

// pauseOf returns the pause of the newest run. known is false if the run does not show whether it
// is paused, for example because it was terminated. In this case, the pause in status stays, and
// the next run starts with it.
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
	// Runs of earlier versions have no memo. If such a run is paused although the spec is not,
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

// pauseLost reports whether status has a pause that the run of the generation neither has nor has ended,
// because Temporal was restored from a backup. A run of an earlier version that is paused has no memo.
func pauseLost(set *v1alpha1.SidecarSet, run *runs.Run) bool {
	rollout := set.Status.Rollout
	return rollout != nil && rollout.Pause != nil && rollout.Generation == set.Generation && (run.Open() || run.Completed()) && !run.GenerationMismatch(set) &&
		run.Pause == nil && run.Resumed == nil && run.Phase != protocol.PhasePaused
}

// quarantineLost reports whether status has a quarantine that the run of the generation neither has nor has
// ended by a retry, because Temporal was restored from a backup. The stage of an older worker has no
// hash, and does not show a retry.
func quarantineLost(set *v1alpha1.SidecarSet, run *runs.Run) bool {
	q := stage.QuarantineOf(set)
	if q == nil || set.Status.Rollout.Generation != set.Generation || run.GenerationMismatch(set) {
		return false
	}
	s := run.Stage
	return s == nil || s.Quarantine == nil && s.Hash != "" && !s.HasRetried(q.Since.Time)
}

// signalOf returns the payload of the signal that repeats a pause.
func signalOf(pause *v1alpha1.RolloutPause) protocol.Pause {
	return protocol.Pause{By: pause.By, Reason: pause.Reason}
}

// lastPause returns pauseOf for a run of an earlier generation. The run may also be of the
// current generation, if it was started after the last write of status.
func lastPause(set *v1alpha1.SidecarSet, run *runs.Run) (pause *v1alpha1.RolloutPause, known bool) {
	at := set.DeepCopy()
	at.Generation = max(set.Status.Rollout.Generation, min(run.Generation, set.Generation))
	if run.Pause == nil && run.Phase == protocol.PhasePaused && !run.GenerationMismatch(at) {
		// In the generation of the run, the spec was paused. Only a resume changes the pause in
		// this case.
		return nil, run.Resumed != nil
	}
	return pauseOf(at, run)
}

// pauseForStart returns the pause with which a run is started. It is the pause of the newest run
// if that is known, and otherwise the pause in status.
func (p *pass) pauseForStart() *v1alpha1.RolloutPause {
	if p.out.pauseKnown {
		return p.out.pause
	}
	return p.pause
}
