package operator

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// restartGracePeriod is how long pods wait after their run completed before another
// is started. It is longer than the cache lags behind the end of a run.
const restartGracePeriod = 5 * time.Second

// rolloutStarted reports whether Temporal has accepted the set's generation.
func rolloutStarted(set *v1alpha1.SidecarSet) bool {
	return set.Status.Rollout != nil && set.Status.Rollout.Generation == set.Generation
}

// outcome is the result of reconcileRun.
type outcome struct {
	// started is set once Temporal has accepted the set's generation.
	started bool
	// hold is the hold for status, if holdKnown.
	hold      *v1alpha1.RolloutHold
	holdKnown bool
	// resumed is who ended the last hold, if the run says so.
	resumed *protocol.Hold
	fault   fault
	events  []rolloutEvent
	// requeueAfter is zero if the next change requeues the set anyway.
	requeueAfter time.Duration
	err          error
}

// holdFor is the hold for a run that is started: that of the newest one if it is known,
// or else that of status.
func (o *outcome) holdFor(seen *observation) *v1alpha1.RolloutHold {
	if o.holdKnown {
		return o.hold
	}
	return seen.hold
}

// reconcileRun starts a run for each generation and keeps it going: it starts another
// one if the run was lost, or if work turned up after its end; it signals a run that
// works on another generation, or that waits for a signal though there is work.
func (r *reconciler) reconcileRun(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, state *runState) outcome {
	now := r.clock.Now()
	if r.rollouts.unreachable() {
		// Sets that have a run are enqueued once Temporal answers again.
		if rolloutStarted(set) && !seen.unfinished() {
			state.recordFinished(set.Generation)
		}
		return outcome{fault: state.fault}
	}
	if left := r.rollouts.throttled(); left > 0 {
		return outcome{fault: state.fault, requeueAfter: left}
	}
	return r.reconcileReachableRun(ctx, set, seen, state, now)
}

// reconcileReachableRun is reconcileRun while Temporal takes calls.
func (r *reconciler) reconcileReachableRun(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, state *runState, now time.Time) outcome {
	if !rolloutStarted(set) {
		return r.startRollout(ctx, set, seen, state, now)
	}
	if !seen.unfinished() && !r.mismatches.take(set.Name) {
		state.recordFinished(set.Generation)
		return r.endRun(ctx, set, seen, state, now)
	}
	if left := state.untilCheck(seen, now); left > 0 {
		return outcome{fault: state.fault, requeueAfter: left}
	}
	found, err := r.rollouts.newestRun(ctx, reference(set))
	if err != nil {
		return r.failed(state, err)
	}
	state.recordCheck(seen, now)
	state.recordReading(found, now)
	if found.unreadable != nil {
		// Nobody knows whether to hold what would be started or woken.
		return outcome{fault: state.fault, requeueAfter: max(state.untilCheck(seen, now), time.Millisecond)}
	}
	out := outcome{resumed: found.resumed}
	out.hold, out.holdKnown = holdOf(set, found)
	if found.open() {
		err = r.reconcileOpenRun(ctx, set, seen, found, state)
	} else {
		out.events, err = r.restartRun(ctx, set, seen, found, out.holdFor(seen), state)
	}
	if err != nil {
		failed := r.failed(state, err)
		out.err, out.requeueAfter = failed.err, failed.requeueAfter
	} else if left := state.untilCheck(seen, r.clock.Now()); seen.unfinished() {
		out.requeueAfter = max(left, time.Millisecond)
	}
	out.fault = state.fault
	return out
}

// endRun has the run of a finished set end. One that fell asleep while its last pods
// started would learn hours later that they serve.
func (r *reconciler) endRun(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, state *runState, now time.Time) outcome {
	left, known := state.untilEndCheck(set.Generation, now)
	if known || left > 0 {
		return outcome{requeueAfter: left}
	}
	found, err := r.rollouts.newestRun(ctx, reference(set))
	if err == nil {
		state.recordEndCheck(set.Generation, found.open(), now)
		err = r.wake(ctx, set, seen, found, state)
	}
	if err != nil {
		return r.failed(state, err)
	}
	out := outcome{resumed: found.resumed}
	out.hold, out.holdKnown = holdOf(set, found)
	out.requeueAfter, _ = state.untilEndCheck(set.Generation, now)
	return out
}

// wake signals a run that sleeps though it would do something.
func (r *reconciler) wake(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, found *run, state *runState) error {
	if !found.waitsForSignal() || !found.neededBy(seen) || !state.mayWake(r.clock.Now()) {
		return nil
	}
	// The next check finds a run that has ended meanwhile.
	_, err := r.rollouts.signal(ctx, reference(set), protocol.GenerationSignal, protocol.GenerationInput{Generation: set.Generation})
	return err
}

// failed is the outcome of a call that failed.
func (r *reconciler) failed(state *runState, err error) outcome {
	if isThrottle(err) {
		return outcome{fault: state.fault, requeueAfter: max(r.rollouts.throttled(), minThrottleBackoff)}
	}
	return outcome{fault: state.fault, err: err}
}

// startRollout hands a generation over, unless nobody knows whether it is to be held.
func (r *reconciler) startRollout(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, state *runState, now time.Time) outcome {
	out := outcome{started: true}
	if state.started != set.Generation {
		if err := r.readLastHold(ctx, set, state, &out, now); err != nil {
			return r.failed(state, err)
		}
		if state.fault.reason == v1alpha1.ReasonRunUnreadable {
			return outcome{fault: state.fault, requeueAfter: heldCheckInterval}
		}
		hold := out.holdFor(seen)
		runID, err := r.rollouts.startOrSignal(ctx, reference(set), set.Generation, hold)
		if err != nil {
			return r.failed(state, err)
		}
		state.recordStart(set.Generation, r.clock.Now())
		log.FromContext(ctx).Info("handed a generation over", "sidecarset", set.Name, "generation", set.Generation, "runID", runID, "held", hold != nil, "plan", seen.plan.Message)
	}
	id := protocol.WorkflowID(set.Name, set.UID)
	note := fmt.Sprintf("generation %d, workflow %s: %s", set.Generation, id, seen.plan.Message)
	if url := r.rollouts.url(id); url != "" {
		note += "; see " + url
	}
	out.fault, out.events = state.fault, []rolloutEvent{{corev1.EventTypeNormal, eventRolloutStarted, note}}
	if seen.unfinished() {
		out.requeueAfter = minCheckInterval
	}
	return out
}

// readLastHold reads the hold from the run of the generation before: it may have been
// paused or resumed, and may have ended, since status was written.
func (r *reconciler) readLastHold(ctx context.Context, set *v1alpha1.SidecarSet, state *runState, out *outcome, now time.Time) error {
	if set.Status.Rollout == nil {
		return nil
	}
	found, err := r.rollouts.newestRun(ctx, reference(set))
	if err != nil {
		return err
	}
	state.recordReading(found, now)
	out.resumed = found.resumed
	out.hold, out.holdKnown = lastHold(set, found)
	return nil
}

// lastHold is holdOf a run of a generation before the set's, or of that one if status
// was never written since it was handed over.
func lastHold(set *v1alpha1.SidecarSet, found *run) (hold *v1alpha1.RolloutHold, known bool) {
	at := set.DeepCopy()
	at.Generation = max(set.Status.Rollout.Generation, min(found.generation, set.Generation))
	if found.hold == nil && found.phase == protocol.PhasePaused && !found.generationMismatch(at) {
		// Its set was paused then, whatever it is now. Only a resume is news.
		return nil, found.resumed != nil
	}
	return holdOf(at, found)
}

// reconcileOpenRun diagnoses an open run, corrects its generation and wakes it.
func (r *reconciler) reconcileOpenRun(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, found *run, state *runState) error {
	state.endedAt = time.Time{}
	if err := r.diagnoseRun(ctx, set, found, state); err != nil || found.taskPending() {
		return err
	}
	if found.generationMismatch(set) {
		return r.correctGeneration(ctx, set, seen, found, state)
	}
	return r.wake(ctx, set, seen, found, state)
}

// diagnoseRun records the fault of the workers that an open run shows.
func (r *reconciler) diagnoseRun(ctx context.Context, set *v1alpha1.SidecarSet, found *run, state *runState) error {
	diagnosed, sure, err := r.rollouts.diagnose(ctx, found, &state.tasks, state.fault)
	if err == nil && sure && diagnosed == (fault{}) && found.hold == nil && (state.stuck() || state.fault != fault{}) {
		diagnosed, err = r.rollouts.refusedWrites(ctx, reference(set))
	}
	if err != nil {
		return err
	}
	state.recordFault(diagnosed, sure, r.clock.Now())
	return nil
}

// correctGeneration signals the set's generation to a run that works on another one.
func (r *reconciler) correctGeneration(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, found *run, state *runState) error {
	if !state.mayCorrect(r.clock.Now()) {
		return nil
	}
	if hold := seen.hold; hold != nil && found.hold == nil {
		// The run is older than the hold.
		if _, err := r.rollouts.signal(ctx, reference(set), protocol.PauseSignal, protocol.Hold{Who: hold.Who, Why: hold.Why}); err != nil {
			return err
		}
	}
	runID, err := r.rollouts.startOrSignal(ctx, reference(set), set.Generation, seen.hold)
	if err == nil {
		log.FromContext(ctx).Info("told a run its generation again", "sidecarset", set.Name, "generation", set.Generation, "runID", runID, "runGeneration", found.generation)
	}
	return err
}

// restartRun starts another run if the last one was lost, or if pods wait for one.
func (r *reconciler) restartRun(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, found *run, hold *v1alpha1.RolloutHold, state *runState) ([]rolloutEvent, error) {
	done := found.completed() && !found.generationMismatch(set)
	lost := !done && state.finished != set.Generation
	if !seen.hasWork() && (!lost || !seen.inProgress()) {
		state.endedAt = time.Time{}
		return nil, nil
	}
	if state.endedAt.IsZero() {
		state.endedAt = r.clock.Now()
	}
	if done && r.clock.Since(state.endedAt) < restartGracePeriod {
		return nil, nil
	}
	runID, err := r.rollouts.startOrSignal(ctx, reference(set), set.Generation, hold)
	if err != nil {
		return nil, err
	}
	state.recordStart(set.Generation, r.clock.Now())
	log.FromContext(ctx).Info("started another run", "sidecarset", set.Name, "generation", set.Generation, "runID", runID, "lost", lost, "plan", seen.plan.Message)
	return []rolloutEvent{{corev1.EventTypeNormal, eventRolloutRestarted,
		fmt.Sprintf("generation %d has pods to upgrade and no open run: %s", set.Generation, seen.plan.Message)}}, nil
}

// holdOf returns the hold of the newest run; known is false when the run does not show
// it. A run that is gone, or was ended by somebody, shows nothing: its successor keeps
// the hold.
func holdOf(set *v1alpha1.SidecarSet, found *run) (hold *v1alpha1.RolloutHold, known bool) {
	if found.hold != nil {
		return &v1alpha1.RolloutHold{Who: found.hold.Who, Why: found.hold.Why}, true
	}
	if found.generationMismatch(set) || !found.open() && !found.completed() {
		return nil, false
	}
	if found.phase != protocol.PhasePaused {
		return nil, true
	}
	// Runs of earlier versions have no memo: one that is paused while the set is
	// not was paused by signal.
	before := set.Status.Rollout.Hold
	switch {
	case set.Spec.UpdateStrategy.Paused:
		return nil, before != nil && *before != v1alpha1.RolloutHold{}
	case before != nil:
		return before, true
	}
	return &v1alpha1.RolloutHold{}, true
}

func reference(set *v1alpha1.SidecarSet) protocol.SetReference {
	return protocol.SetReference{Name: set.Name, UID: set.UID}
}
