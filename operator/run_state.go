package operator

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/operator/runs"
)

// Intervals between two checks of the run of a SidecarSet that is not finished.
const (
	// minCheckInterval is the shortest, and that while something changes.
	minCheckInterval = time.Second
	// stuckCheckInterval is the longest while the run has work and nothing changes.
	stuckCheckInterval = 8 * time.Second
	// faultCheckInterval is the longest while something may be wrong, or is.
	faultCheckInterval = 4 * time.Second
	// pausedCheckInterval is for a run that a signal may resume, or one that waits for
	// pods to migrate between hot twins.
	pausedCheckInterval = 5 * time.Second
	// idleCheckInterval is for a run without work.
	idleCheckInterval = 12 * time.Second
	// endCheckInterval is the time between the two checks of the run of a SidecarSet that
	// is finished: a run that is awake notices the end by itself.
	endCheckInterval = 6 * time.Second
	endChecks        = 2
	// pausedEndCheckInterval is for a finished run that is paused and may be resumed.
	pausedEndCheckInterval = 5 * time.Minute
	// A run whose end is to be recorded is checked after minEndInterval, then after twice
	// as long each time.
	minEndInterval = time.Second
	maxEndInterval = 5 * time.Minute
	// lostRunGrace is how long a run that did not complete must be gone before the end is
	// recorded: its last activity may not know yet, and write.
	lostRunGrace = time.Minute
)

const (
	// A run of another generation than the SidecarSet's is signalled again after
	// minCorrectionBackoff, then twice as long each time.
	minCorrectionBackoff = 5 * time.Second
	maxCorrectionBackoff = 5 * time.Minute
	// minWakeInterval is the shortest time between two wakes of a run that has done
	// nothing since the first: its writes may be rejected.
	minWakeInterval = time.Minute
	// minMessageAge is how long the message about a failure stays.
	minMessageAge = time.Minute
)

// runStates are the states of the runs of SidecarSets, by name. Losing them with the process
// is harmless: a second start changes nothing.
type runStates struct{ sync.Map }

// of returns the state of the run of a SidecarSet. Only the reconcile of that SidecarSet
// uses it.
func (s *runStates) of(set *v1alpha1.SidecarSet) *runState {
	if known, ok := s.Load(set.Name); ok && known.(*runState).uid == set.UID {
		return known.(*runState)
	}
	state := &runState{uid: set.UID, fault: faultOf(set)}
	if !needsTemporal(set) {
		state.ended = set.Generation
	}
	s.Store(set.Name, state)
	return state
}

// runState is what this process remembers of the run of one SidecarSet.
type runState struct {
	uid types.UID
	// started is the newest generation whose rollout this process started, and start the
	// pause that the run before showed then: the write of status may be rejected.
	started int64
	start   outcome
	// observed is the newest generation, first observed at observedAt.
	observed   int64
	observedAt time.Time
	// finished is the newest generation of which nothing was left to do.
	finished int64
	// ended is the newest generation that was finished, and whose run needs no more
	// checks unless its end is to be recorded.
	ended int64
	end   endCheck
	// checkedAt is the time of the last check of the run, checkedCounts and hadWork
	// what there was to do then, and checkInterval the time to the next one unless
	// that changes.
	checkedAt     time.Time
	checkInterval runs.Backoff
	checkedCounts protocol.Counts
	hadWork       bool
	// wokenAt is the last time that the run was woken, and wokenFor the counts then.
	wokenAt  time.Time
	wokenFor protocol.Counts
	// endedAt is when the run had first ended though pods wait.
	endedAt time.Time
	// correctedAt is when the run was last signalled its generation, and
	// correctionBackoff the time to the next signal.
	correctedAt       time.Time
	correctionBackoff runs.Backoff
	// fault is what stops the run, recorded at faultAt; faultMayChange is set while the
	// fault is not sure, or not over.
	fault          runs.Fault
	faultAt        time.Time
	faultMayChange bool
	tasks          runs.TaskAges
}

// endCheck is the state of the checks of the run of a finished SidecarSet.
type endCheck struct {
	// generation that is finished; zero before the first check.
	generation int64
	done       int
	nextAt     time.Time
	interval   runs.Backoff
	// lostSince is when the run was first not open.
	lostSince time.Time
}

func (s *runState) observeGeneration(generation int64, now time.Time) {
	if s.observed != generation {
		s.observed, s.observedAt = generation, now
	}
}

func (s *runState) recordStart(generation int64, now time.Time) {
	s.started, s.start, s.checkedAt, s.checkInterval = generation, outcome{}, now, runs.Backoff(minCheckInterval)
	s.ended, s.end = 0, endCheck{}
	s.endedAt, s.correctedAt, s.correctionBackoff = time.Time{}, now, runs.Backoff(minCorrectionBackoff)
	s.wokenAt = time.Time{}
}

func (s *runState) recordFinished(generation int64) {
	s.finished, s.endedAt, s.checkedAt = generation, time.Time{}, time.Time{}
	s.fault, s.faultMayChange, s.tasks = runs.Fault{}, false, runs.TaskAges{}
}

// untilEndCheck returns how long the next check can wait whether the run of a finished
// SidecarSet has ended; due is false if it needs no more checks. toRecord is set while
// status does not record the end.
func (s *runState) untilEndCheck(generation int64, toRecord bool, now time.Time) (left time.Duration, due bool) {
	if s.end.generation != generation {
		s.end = endCheck{generation: generation, nextAt: now}
	}
	return s.end.nextAt.Sub(now), s.ended != generation || toRecord
}

// recordEndCheck records a check of the run of a finished SidecarSet, and reports whether
// the run shows the end. Status records the end only then, and before another run begins:
// each pod that a later run upgrades names a later resourceVersion of the SidecarSet.
func (s *runState) recordEndCheck(set *v1alpha1.SidecarSet, run *runs.Run, toRecord bool, now time.Time) (ended bool) {
	check := &s.end
	check.done++
	if run.Open() {
		check.lostSince = time.Time{}
	} else if check.lostSince.IsZero() {
		check.lostSince = now
	}
	ended = run.Completed() && !run.GenerationMismatch(set) || !run.Open() && now.Sub(check.lostSince) >= lostRunGrace
	switch {
	case toRecord && !ended:
		check.nextAt = now.Add(check.interval.Next(minEndInterval, maxEndInterval))
	case run.Open() && check.done < endChecks:
		check.nextAt = now.Add(endCheckInterval)
	case run.Open() && run.Pause != nil:
		check.nextAt = now.Add(pausedEndCheckInterval)
	default:
		s.ended = set.Generation
	}
	return ended
}

// untilCheck returns how long the next check can wait.
func (s *runState) untilCheck(o *observation, now time.Time) time.Duration {
	interval := idleCheckInterval
	switch {
	case s.changed(o) && (o.hasWork() || o.pause != nil):
		interval = minCheckInterval
	case o.pause != nil:
		interval = pausedCheckInterval
	case o.hasWork():
		interval = max(time.Duration(s.checkInterval), minCheckInterval)
	case o.plan.Counts.Migrating > 0:
		interval = pausedCheckInterval
	}
	if s.faultMayChange {
		interval = min(interval, faultCheckInterval)
	}
	return s.checkedAt.Add(interval).Sub(now)
}

func (s *runState) changed(o *observation) bool {
	return s.checkedAt.IsZero() || o.plan.Counts != s.checkedCounts || o.hasWork() && !s.hadWork
}

func (s *runState) recordCheck(o *observation, now time.Time) {
	if o.unfinished() {
		s.ended, s.end = 0, endCheck{}
	}
	if s.changed(o) {
		s.checkInterval = 0
	}
	s.checkInterval.Next(minCheckInterval, stuckCheckInterval)
	s.checkedCounts, s.hadWork, s.checkedAt = o.plan.Counts, o.hasWork(), now
}

// stuck reports whether nothing has changed for a while though the run has work.
func (s *runState) stuck() bool { return s.hadWork && s.checkInterval > runs.Backoff(minCheckInterval) }

// mayWake reports whether to wake a run that waits for a signal, and records the wake if
// so. One wake is enough: the run also plans again at its timer.
func (s *runState) mayWake(counts protocol.Counts, now time.Time) bool {
	// Pods that the run does not upgrade change the other counts.
	done := func(c protocol.Counts) [4]int { return [4]int{c.Remaining, c.Converging, c.Migrating, c.Migrated} }
	slotsChanged := counts.Unavailable != s.wokenFor.Unavailable && now.Sub(s.wokenAt) >= minWakeInterval
	if !s.wokenAt.IsZero() && done(counts) == done(s.wokenFor) && !slotsChanged {
		return false
	}
	s.wokenAt, s.wokenFor = now, counts
	return true
}

// mayCorrect reports whether to signal a run its generation again, and counts the
// signal if so.
func (s *runState) mayCorrect(now time.Time) bool {
	if now.Sub(s.correctedAt) < time.Duration(s.correctionBackoff) {
		return false
	}
	s.correctedAt = now
	s.correctionBackoff.Next(minCorrectionBackoff, maxCorrectionBackoff)
	return true
}

func (s *runState) recordReading(run *runs.Run, now time.Time) {
	switch {
	case run.Unreadable != nil:
		s.recordFault(runs.UnreadableFault(run.Unreadable), true, now)
	case s.fault.Reason == v1alpha1.ReasonRunUnreadable:
		s.recordFault(runs.Fault{}, true, now)
	}
}

// recordFault records what stops the run. The message about one failure stays for a while,
// since each attempt may quote another cause.
func (s *runState) recordFault(found runs.Fault, sure bool, now time.Time) {
	s.faultMayChange = !sure || found != runs.Fault{}
	switch {
	case !sure, found == s.fault:
	case found.SameFailure(s.fault) && now.Sub(s.faultAt) < minMessageAge:
	default:
		s.fault, s.faultAt = found, now
	}
}

// faultOf reads the fault from the status of a SidecarSet.
func faultOf(set *v1alpha1.SidecarSet) runs.Fault {
	switch degraded := reasonAndMessage(set, v1alpha1.ConditionDegraded); degraded.reason {
	case v1alpha1.ReasonWorkerUnavailable, v1alpha1.ReasonRolloutFailing, v1alpha1.ReasonRunUnreadable:
		return runs.Fault{Reason: degraded.reason, Message: degraded.message}
	}
	return runs.Fault{}
}

// rolloutStarted reports whether Temporal has accepted the generation of a SidecarSet.
func rolloutStarted(set *v1alpha1.SidecarSet) bool {
	return set.Status.Rollout != nil && set.Status.Rollout.Generation == set.Generation
}

// needsTemporal reports whether a SidecarSet is requeued when Temporal goes away or comes
// back: unless its status says that its rollout has ended. A status that is about to say
// otherwise is an event of its own.
func needsTemporal(set *v1alpha1.SidecarSet) bool {
	progressing := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
	if !rolloutStarted(set) || set.Status.Rollout.Pause != nil || progressing == nil {
		return true
	}
	return !slices.Contains([]string{
		v1alpha1.ReasonRolloutComplete, v1alpha1.ReasonPartitionReached, v1alpha1.ReasonNotUpgradablePods, v1alpha1.ReasonNotUpdate, v1alpha1.ReasonInvalid,
	}, progressing.Reason)
}
