package operator

import (
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/operator/runs"
)

// pauseOf returns the pause of the newest run; known is false when the run does not show
// it. A run that is gone, or was terminated, shows nothing: its successor keeps the pause.
func pauseOf(set *v1alpha1.SidecarSet, run *runs.Run) (pause *v1alpha1.RolloutPause, known bool) {
	if run.Pause != nil {
		return &v1alpha1.RolloutPause{By: run.Pause.By, Reason: run.Pause.Reason}, true
	}
	if run.GenerationMismatch(set) || !run.Open() && !run.Completed() {
		return nil, false
	}
	if run.Phase != protocol.PhasePaused {
		return nil, true
	}
	// Runs of earlier versions have no memo. If such a run is paused and the spec is not,
	// it was paused by signal.
	before := set.Status.Rollout.Pause
	switch {
	case set.Spec.UpdateStrategy.Paused:
		return nil, before != nil && *before != v1alpha1.RolloutPause{}
	case before != nil:
		return before, true
	}
	return &v1alpha1.RolloutPause{}, true
}

// signalOf is the payload of the signal of a pause.
func signalOf(pause *v1alpha1.RolloutPause) protocol.Pause {
	return protocol.Pause{By: pause.By, Reason: pause.Reason}
}

// lastPause is pauseOf a run of a generation before that of the SidecarSet, or of that
// generation if status was not written since it was started.
func lastPause(set *v1alpha1.SidecarSet, run *runs.Run) (pause *v1alpha1.RolloutPause, known bool) {
	at := set.DeepCopy()
	at.Generation = max(set.Status.Rollout.Generation, min(run.Generation, set.Generation))
	if run.Pause == nil && run.Phase == protocol.PhasePaused && !run.GenerationMismatch(at) {
		// The spec was paused then, whatever it is now. Only a resume changes the pause.
		return nil, run.Resumed != nil
	}
	return pauseOf(at, run)
}

// pauseForStart is the pause for a run that is started: that of the newest run if it is
// known, or else that of status.
func (p *pass) pauseForStart() *v1alpha1.RolloutPause {
	if p.out.pauseKnown {
		return p.out.pause
	}
	return p.pause
}
