package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// restartGracePeriod is how long pods may wait after their run completed until another
// is started. It is longer than the cache lags behind the end of a run.
const restartGracePeriod = 5 * time.Second

// rolloutStarted reports whether Temporal has accepted the set's generation.
func rolloutStarted(set *v1alpha1.SidecarSet) bool {
	return set.Status.Rollout != nil && set.Status.Rollout.Generation == set.Generation
}

// outcome is what came of tending a set's run.
type outcome struct {
	// started is set once Temporal has accepted the set's generation.
	started bool
	// hold is what status shall say, if holdKnown.
	hold      *v1alpha1.RolloutHold
	holdKnown bool
	fault     fault
	events    []rolloutEvent
	// again is when to look again; zero for when something changes.
	again time.Duration
	err   error
}

// tend gives each generation its run, and keeps the run going: another one when
// it was lost, or work turned up after it ended; word of its generation when it
// works on another; a signal when it sleeps though there is work.
func (r *reconciler) tend(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, state *runState) outcome {
	now := r.now()
	if r.rollouts.unreachable() {
		// Every set is enqueued once Temporal answers again.
		return outcome{fault: state.fault}
	}
	if left := r.rollouts.throttled(); left > 0 {
		return outcome{fault: state.fault, again: left}
	}
	if !rolloutStarted(set) {
		return r.startRollout(ctx, set, seen, state)
	}
	if !seen.unfinished() && !r.suspects.take(set.Name) {
		state.recordFinished(set.Generation)
		return outcome{}
	}
	if left := state.untilCheck(seen, now); left > 0 {
		return outcome{fault: state.fault, again: left}
	}
	found, err := r.rollouts.newestRun(ctx, reference(set))
	if err != nil {
		return r.failed(state, err)
	}
	state.recordCheck(seen, now)
	var out outcome
	out.hold, out.holdKnown = holdOf(set, found)
	if found.open() {
		err = r.attend(ctx, set, seen, found, state)
	} else {
		out.events, err = r.restart(ctx, set, seen, found, state)
	}
	if err != nil {
		failed := r.failed(state, err)
		out.err, out.again = failed.err, failed.again
	} else if left := state.untilCheck(seen, r.now()); seen.unfinished() {
		out.again = max(left, time.Millisecond)
	}
	out.fault = state.fault
	return out
}

// failed is the outcome of a call that failed.
func (r *reconciler) failed(state *runState, err error) outcome {
	var unmade notAsked
	if errors.As(err, &unmade) || isThrottle(err) {
		return outcome{fault: state.fault, again: max(r.rollouts.throttled(), shortestThrottle)}
	}
	return outcome{fault: state.fault, err: err}
}

func (r *reconciler) startRollout(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, state *runState) outcome {
	if state.started != set.Generation {
		if err := r.rollouts.startOrSignal(ctx, reference(set), set.Generation, seen.hold); err != nil {
			return r.failed(state, err)
		}
		state.recordStart(set.Generation, r.now())
		log.FromContext(ctx).Info("started a rollout", "generation", set.Generation, "plan", seen.plan.Message)
	}
	id := protocol.WorkflowID(set.Name, set.UID)
	note := fmt.Sprintf("generation %d, workflow %s: %s", set.Generation, id, seen.plan.Message)
	if url := r.rollouts.url(id); url != "" {
		note += "; see " + url
	}
	out := outcome{started: true, fault: state.fault, events: []rolloutEvent{{corev1.EventTypeNormal, eventRolloutStarted, note}}}
	if seen.unfinished() {
		out.again = minCheckInterval
	}
	return out
}

// attend looks after an open run.
func (r *reconciler) attend(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, found *run, state *runState) error {
	state.endedAt = time.Time{}
	if err := r.examine(ctx, set, found, state); err != nil || found.begins() {
		return err
	}
	switch {
	case found.astray(set):
		return r.putRight(ctx, set, seen, found, state)
	case seen.hasWork() && found.sleeps() && (found.hold == nil || seen.plan.Counts.Migrated > 0) && state.mayWake(seen, r.now()):
		// One that has ended meanwhile is found out by the next look.
		_, err := r.rollouts.signal(ctx, reference(set), protocol.GenerationSignal, protocol.GenerationInput{Generation: set.Generation})
		return err
	}
	return nil
}

// examine finds out what is wrong with those who do the work of an open run.
func (r *reconciler) examine(ctx context.Context, set *v1alpha1.SidecarSet, found *run, state *runState) error {
	illness, sure, err := r.rollouts.diagnose(ctx, found, &state.tasks, state.fault)
	if err == nil && sure && illness == (fault{}) && found.hold == nil && (state.stuck() || state.fault != fault{}) {
		illness, err = r.rollouts.refusedWrites(ctx, reference(set))
	}
	if err != nil {
		return err
	}
	state.recordFault(illness, sure, r.now())
	return nil
}

// putRight tells a run that works on another generation which the set's is.
func (r *reconciler) putRight(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, found *run, state *runState) error {
	if !state.mayCorrect(r.now()) {
		return nil
	}
	log.FromContext(ctx).Info("telling a run its generation again", "generation", set.Generation, "run works on", found.generation)
	if hold := seen.hold; hold != nil && found.hold == nil {
		// The run is older than the hold.
		if _, err := r.rollouts.signal(ctx, reference(set), protocol.PauseSignal, protocol.Hold{Who: hold.Who, Why: hold.Why}); err != nil {
			return err
		}
	}
	return r.rollouts.startOrSignal(ctx, reference(set), set.Generation, seen.hold)
}

// astray reports whether the run works on another generation than the set's: its
// signal was mistyped, or one of cluster and Temporal was restored from a backup.
func (r *run) astray(set *v1alpha1.SidecarSet) bool {
	return r.generation != 0 && r.generation != set.Generation
}

// restart starts another run if the last one was lost, or if pods wait for one.
func (r *reconciler) restart(ctx context.Context, set *v1alpha1.SidecarSet, seen *observation, found *run, state *runState) ([]rolloutEvent, error) {
	done := found.completed() && !found.astray(set)
	lost := !done && state.finished != set.Generation
	if !seen.hasWork() && (!lost || !seen.inProgress()) {
		state.endedAt = time.Time{}
		return nil, nil
	}
	if state.endedAt.IsZero() {
		state.endedAt = r.now()
	}
	if done && r.now().Sub(state.endedAt) < restartGracePeriod {
		return nil, nil
	}
	if err := r.rollouts.startOrSignal(ctx, reference(set), set.Generation, seen.hold); err != nil {
		return nil, err
	}
	state.recordStart(set.Generation, r.now())
	return []rolloutEvent{{corev1.EventTypeNormal, eventRolloutRestarted,
		fmt.Sprintf("generation %d has pods to upgrade and no open run: %s", set.Generation, seen.plan.Message)}}, nil
}

// holdOf tells from the newest run what a set's status shall say of a hold; known
// is false when the run does not tell. A run that is gone, or was ended by
// somebody, tells nothing: the hold goes on with the next.
func holdOf(set *v1alpha1.SidecarSet, found *run) (hold *v1alpha1.RolloutHold, known bool) {
	if found.hold != nil {
		return &v1alpha1.RolloutHold{Who: found.hold.Who, Why: found.hold.Why}, true
	}
	if found.astray(set) || !found.open() && !found.completed() {
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
