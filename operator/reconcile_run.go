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
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/operator/runs"
)

const (
	// restartGracePeriod is the time from the completion of a run to the start of another run for the
	// remaining pods. After this time, the cache contains all changes from before the end of the completed
	// run.
	restartGracePeriod = 5 * time.Second
	// busyRetryInterval is the delay before the retry of a signal to a run that was completing. After this
	// delay, another run can be started.
	busyRetryInterval = 200 * time.Millisecond
)

// reconcileRun starts a run for each generation. reconcileRun starts another run if the run was lost, or if
// pods have to be upgraded after the end of the run. reconcileRun signals a run that works on another
// generation, and a run that waits for a signal although pods can be upgraded.
func (s *runStep) reconcileRun(ctx context.Context, p *pass) {
	err := s.callRun(ctx, p)
	switch {
	case runs.IsBusy(err):
		log.FromContext(ctx).V(1).Info("the run could not be signalled just now; trying again", "cause", err.Error())
		p.out.requeueAfter = busyRetryInterval
	case runs.IsThrottled(err):
		p.out.requeueAfter = max(s.client.Throttled(), runs.MinThrottleBackoff)
	default:
		p.out.err = err
	}
	if rejected, ok := errors.AsType[runs.RejectedError](err); ok {
		p.state.rejected = rejected
	}
	p.out.addState(p.state)
}

func (s *runStep) callRun(ctx context.Context, p *pass) error {
	switch left := s.client.Throttled(); {
	case s.client.Unreachable():
		// SidecarSets that have a run are requeued once Temporal responds again.
		if rolloutStarted(p.set) && !p.unfinished() {
			p.state.recordFinished(p.set.Generation)
			if p.endToRecord {
				p.out.requeueAfter = endCheckInterval
			}
		}
		return nil
	case left > 0:
		p.out.requeueAfter = left
		return nil
	case !rolloutStarted(p.set):
		return s.startRollout(ctx, p)
	}
	p.state.mismatched = s.mismatched(p.set.Name) || p.state.mismatched
	if !p.unfinished() && !p.state.mismatched {
		return s.endRun(ctx, p)
	}
	err := s.checkRun(ctx, p)
	p.state.mismatched = p.state.mismatched && (err != nil || p.run == nil)
	return err
}

// startRollout starts or signals a run for a new generation. If the pause of the last run cannot be
// decoded, startRollout only requeues the SidecarSet, because the new run may have to be paused.
func (s *runStep) startRollout(ctx context.Context, p *pass) error {
	p.out = p.state.start
	if p.state.started != p.set.Generation {
		if err := s.readLastPause(ctx, p); err != nil {
			p.out = outcome{}
			return err
		}
		if p.state.fault.Reason == v1alpha1.ReasonRunUnreadable {
			p.state.rejected = nil
			p.out = outcome{requeueAfter: pausedCheckInterval}
			return nil
		}
		pause := p.pauseForStart()
		runID, err := s.client.StartOrSignal(ctx, p.start(pause))
		if err != nil {
			p.out = outcome{}
			return err
		}
		p.state.recordStart(p.set.Generation, s.clock.Now())
		p.state.start = p.out
		log.FromContext(ctx).Info("started a rollout", "sidecarset", p.set.Name, "generation", p.set.Generation, "runID", runID, "paused", pause != nil, "plan", p.plan.Message)
	}
	id := protocol.WorkflowID(p.set.Name, p.set.UID)
	note := startNote(p.set, &p.plan, p.pauseForStart()) + "; workflow " + id
	if url := s.client.URL(id); url != "" {
		note += "; see " + url
	}
	p.out.started, p.out.events = true, []rolloutEvent{{corev1.EventTypeNormal, eventRolloutStarted, note}}
	if p.unfinished() {
		p.out.requeueAfter = minCheckInterval
	}
	return nil
}

// readLastPause reads the pause from the run of the earlier generation. The earlier run may have been
// paused or resumed, and may have ended, since the last write of status.
func (s *runStep) readLastPause(ctx context.Context, p *pass) (err error) {
	if p.set.Status.Rollout == nil {
		return nil
	}
	if p.run, err = s.client.NewestRun(ctx, runs.Reference(p.set)); err != nil {
		return err
	}
	p.state.recordReading(p.run, p.now)
	p.out.resumed = p.run.Resumed
	p.out.pause, p.out.pauseKnown = lastPause(p.set, p.run)
	return nil
}

// endRun wakes a sleeping run of a finished SidecarSet, so that the run completes before its next timer.
// endRun also checks whether the run has ended.
func (s *runStep) endRun(ctx context.Context, p *pass) (err error) {
	p.state.recordFinished(p.set.Generation)
	left, due := p.state.untilEndCheck(p.set.Generation, p.endToRecord, p.now)
	if !due {
		return nil
	}
	if left > 0 {
		p.out.requeueAfter = left
		return nil
	}
	if p.run, err = s.client.NewestRun(ctx, runs.Reference(p.set)); err != nil {
		p.state.end.lostSince = time.Time{}
		return err
	}
	p.out.ended = p.state.recordEndCheck(p.set, p.run, p.endToRecord, p.now)
	if p.state.end.done <= endWakes && p.run.Pause == nil && p.run.Unreadable == nil && p.run.WaitsForSignal() {
		signal := s.wake
		if pauseLost(p.set, p.run) {
			signal = s.restoreRun
		}
		if err := signal(ctx, p); err != nil {
			return err
		}
	}
	p.out.resumed, p.out.stage, p.out.permit = p.run.Resumed, stageOf(p), permitOf(p)
	p.out.pause, p.out.pauseKnown = pauseOf(p.set, p.run)
	if left, due = p.state.untilEndCheck(p.set.Generation, p.endToRecord && !p.out.ended, p.now); due {
		p.out.requeueAfter = left
	}
	return nil
}

func (s *runStep) checkRun(ctx context.Context, p *pass) (err error) {
	if left := p.state.untilCheck(&p.observation, p.now); left > 0 {
		p.out.requeueAfter = left
		return nil
	}
	if p.run, err = s.client.NewestRun(ctx, runs.Reference(p.set)); err != nil {
		return err
	}
	p.state.recordCheck(&p.observation, p.now)
	p.state.recordReading(p.run, p.now)
	if p.run.Unreadable != nil {
		// The run may be paused, so the operator neither wakes the run nor starts another run.
		p.state.rejected = nil
		p.out.requeueAfter = max(p.state.untilCheck(&p.observation, p.now), time.Millisecond)
		return nil
	}
	p.out.resumed, p.out.stage, p.out.permit = p.run.Resumed, stageOf(p), permitOf(p)
	p.out.pause, p.out.pauseKnown = pauseOf(p.set, p.run)
	if p.run.Open() {
		err = s.reconcileOpenRun(ctx, p)
	} else {
		err = s.restartRun(ctx, p)
	}
	if err != nil {
		return err
	}
	if p.unfinished() || p.endToRecord && !p.out.ended {
		p.out.requeueAfter = max(p.state.untilCheck(&p.observation, s.clock.Now()), time.Millisecond)
	}
	return nil
}

// reconcileOpenRun diagnoses an open run. If necessary, reconcileOpenRun restores the pause and the
// quarantine of the run, corrects the generation of the run, or wakes the run.
func (s *runStep) reconcileOpenRun(ctx context.Context, p *pass) error {
	p.state.endedAt = time.Time{}
	if !p.run.GenerationMismatch(p.set) {
		p.state.rejected = nil
	}
	if err := s.diagnoseRun(ctx, p); err != nil || p.run.TaskPending() {
		return err
	}
	if quarantineLost(p.set, p.run) || pauseLost(p.set, p.run) {
		return s.restoreRun(ctx, p)
	}
	s.readWait(ctx, p)
	if p.run.GenerationMismatch(p.set) {
		return s.correctGeneration(ctx, p)
	}
	if p.run.Phase == protocol.PhaseFrozen && !p.frozen() {
		p.state.forgetWake(s.clock.Now()) // the run waits for a freeze that has ended
	}
	if p.run.WaitsForSignal() && p.mayWake(s.clock.Now()) {
		return s.wake(ctx, p)
	}
	return nil
}

// readWait records the reason why a sleeping run waits, if the pods do not show the reason. If the run does
// not respond, the condition shows the plan of the operator instead.
func (s *runStep) readWait(ctx context.Context, p *pass) {
	p.state.waits = ""
	limited := p.run.Phase == protocol.PhaseWaiting && p.run.Stage.Limits() && (p.run.Stage.Step.Domains != nil || respectsBudgets(p.run))
	if !limited && !p.awaitsPermit() {
		return
	}
	status, err := s.client.Status(ctx, runs.Reference(p.set))
	if err != nil {
		log.FromContext(ctx).V(1).Info("cannot read what the run waits for", "sidecarset", p.set.Name, "cause", err.Error())
		return
	}
	switch {
	case status.Generation != p.set.Generation:
	case p.awaitsPermit():
		p.state.fleetFault = status.FleetFault
	case status.Phase == protocol.PhaseWaiting:
		p.state.waits = status.Message
	}
}

// diagnoseRun records the fault of an open run: a fault of the workers, or a batch with only rejected
// writes.
func (s *runStep) diagnoseRun(ctx context.Context, p *pass) error {
	fault, sure, err := s.client.Diagnose(ctx, p.run, &p.state.tasks, p.state.fault)
	if err == nil && sure && fault == (runs.Fault{}) && p.run.Pause == nil && !p.frozen() && (p.state.stuck() || p.state.fault != runs.Fault{}) {
		fault, err = s.client.RejectedWrites(ctx, runs.Reference(p.set))
	}
	if err != nil {
		return err
	}
	p.state.recordFault(fault, sure, s.clock.Now())
	return nil
}

// stageOf returns the stage of the run for status. stageOf returns nil if the run has lost the quarantine that
// status shows.
func stageOf(p *pass) *protocol.Stage {
	if quarantineLost(p.set, p.run) {
		return nil
	}
	return p.run.Stage
}

// restoreRun sends the pause and the quarantine in status to a run that has lost them.
func (s *runStep) restoreRun(ctx context.Context, p *pass) error {
	if !p.state.mayCorrect(s.clock.Now()) {
		return nil
	}
	log.FromContext(ctx).Info("Temporal has lost the pause or the quarantine of a run; signalling them again", "sidecarset", p.set.Name, "generation", p.set.Generation)
	if pauseLost(p.set, p.run) {
		if _, err := s.client.Signal(ctx, runs.Reference(p.set), protocol.PauseSignal, signalOf(p.set.Status.Rollout.Pause)); err != nil {
			return err
		}
	}
	if !quarantineLost(p.set, p.run) {
		return nil
	}
	generation := protocol.GenerationInput{Generation: p.set.Generation, Stage: stage.ForStart(p.set)}
	_, err := s.client.Signal(ctx, runs.Reference(p.set), protocol.GenerationSignal, generation)
	return err
}

// correctGeneration signals the generation of the SidecarSet to a run that works on another
// generation.
func (s *runStep) correctGeneration(ctx context.Context, p *pass) error {
	if !p.state.mayCorrect(s.clock.Now()) {
		return nil
	}
	if pause := p.pause; pause != nil && p.run.Pause == nil {
		// The run does not have the pause in status.
		if _, err := s.client.Signal(ctx, runs.Reference(p.set), protocol.PauseSignal, signalOf(pause)); err != nil {
			return err
		}
	}
	runID, err := s.client.StartOrSignal(ctx, p.start(p.pause))
	if err == nil {
		p.state.rejected = nil
		log.FromContext(ctx).Info("signalled the generation to the run again", "sidecarset", p.set.Name, "generation", p.set.Generation, "runID", runID, "runGeneration", p.run.Generation)
	}
	return err
}

// wake sends a signal that causes a sleeping run to plan immediately. If the run has ended, wake returns nil.
// After an error, the next pass wakes the run again.
func (s *runStep) wake(ctx context.Context, p *pass) error {
	_, err := s.client.Signal(ctx, runs.Reference(p.set), protocol.GenerationSignal, protocol.GenerationInput{Generation: p.set.Generation})
	if err != nil {
		p.state.wokenAt = time.Time{}
	}
	return err
}

// restartRun starts another run if the last run was lost, or if the rollout needs a run again.
func (s *runStep) restartRun(ctx context.Context, p *pass) error {
	done := p.run.Completed() && !p.run.GenerationMismatch(p.set) && !quarantineLost(p.set, p.run)
	lost := !done && p.state.finished != p.set.Generation
	p.out.ended = done
	// A run that is lost during a freeze is started again, because a rollback continues during a freeze.
	if !p.hasWork() && !p.awaitsStep() && !p.awaitsPermit() && (!lost || !p.inProgress() && !p.frozen()) {
		p.state.endedAt, p.state.rejected = time.Time{}, nil
		return nil
	}
	if p.state.endedAt.IsZero() {
		p.state.endedAt = s.clock.Now()
	}
	if done && s.clock.Since(p.state.endedAt) < restartGracePeriod {
		return nil
	}
	p.out.ended = false
	runID, err := s.client.StartOrSignal(ctx, p.start(p.pauseForStart()))
	if err != nil {
		return err
	}
	p.state.recordStart(p.set.Generation, s.clock.Now())
	log.FromContext(ctx).Info("started another run", "sidecarset", p.set.Name, "generation", p.set.Generation, "runID", runID, "lost", lost, "plan", p.plan.Message)
	p.out.events = []rolloutEvent{{corev1.EventTypeNormal, eventRolloutRestarted,
		fmt.Sprintf("generation %d has pods to upgrade and no open run: %s", p.set.Generation, p.plan.Message)}}
	return nil
}
