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
)

const (
	// A run of another generation than the set's is signalled again after
	// minCorrectionBackoff, then twice as long each time.
	minCorrectionBackoff = 5 * time.Second
	maxCorrectionBackoff = 5 * time.Minute
	// minWakeInterval is the shortest time between two wakes of a run that has done
	// nothing since the first: its writes may be rejected.
	minWakeInterval = time.Minute
	// minMessageAge is how long the message about a failure stays.
	minMessageAge = time.Minute
)

// runStates holds what status does not show of the runs of SidecarSets. Losing it with
// the process is harmless: a second start changes nothing.
type runStates struct{ byName sync.Map }

// of returns the state of the run of a SidecarSet. Only the reconcile of that SidecarSet
// uses it.
func (s *runStates) of(set *v1alpha1.SidecarSet) *runState {
	if known, ok := s.byName.Load(set.Name); ok && known.(*runState).uid == set.UID {
		return known.(*runState)
	}
	state := &runState{uid: set.UID, fault: faultOf(set)}
	if !needsTemporal(set) {
		state.ended = set.Generation
	}
	s.byName.Store(set.Name, state)
	return state
}

func (s *runStates) forget(name string) { s.byName.Delete(name) }

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
	// checks. Until then the run is checked at endCheckAt, endChecksLeft more times.
	ended         int64
	endCheckAt    time.Time
	endChecksLeft int
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
	end            endCheck
}

// observeGeneration records which generation a SidecarSet has.
func (s *runState) observeGeneration(generation int64, now time.Time) {
	if s.observed != generation {
		s.observed, s.observedAt = generation, now
	}
}

// recordStart records that a rollout was started or signalled.
func (s *runState) recordStart(generation int64, now time.Time) {
	s.started, s.start, s.checkedAt, s.checkInterval = generation, outcome{}, now, runs.Backoff(minCheckInterval)
	s.ended, s.endCheckAt = 0, time.Time{}
	s.endedAt, s.correctedAt, s.correctionBackoff = time.Time{}, now, runs.Backoff(minCorrectionBackoff)
	s.wokenAt = time.Time{}
}

// recordFinished records that nothing is left to do for a generation.
func (s *runState) recordFinished(generation int64) {
	s.finished, s.endedAt, s.checkedAt = generation, time.Time{}, time.Time{}
	s.fault, s.faultMayChange, s.tasks = runs.Fault{}, false, runs.TaskAges{}
}

// untilEndCheck returns how long the next check can wait whether the run of a finished
// SidecarSet has ended; known is true once it has.
func (s *runState) untilEndCheck(generation int64, now time.Time) (left time.Duration, known bool) {
	if s.ended == generation {
		return 0, true
	}
	if s.endCheckAt.IsZero() {
		s.endCheckAt, s.endChecksLeft = now, endChecks
	}
	return s.endCheckAt.Sub(now), false
}

// recordEndCheck records a check of the run of a finished SidecarSet.
func (s *runState) recordEndCheck(generation int64, run *runs.Run, now time.Time) {
	s.endChecksLeft--
	switch {
	case run.Open() && s.endChecksLeft > 0:
		s.endCheckAt = now.Add(endCheckInterval)
	case run.Open() && run.Pause != nil:
		s.endCheckAt = now.Add(pausedEndCheckInterval)
	default:
		s.ended, s.endCheckAt = generation, time.Time{}
	}
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

// changed reports whether the work differs from that of the last check.
func (s *runState) changed(o *observation) bool {
	return s.checkedAt.IsZero() || o.plan.Counts != s.checkedCounts || o.hasWork() && !s.hadWork
}

// recordCheck records a check of the run.
func (s *runState) recordCheck(o *observation, now time.Time) {
	if o.unfinished() {
		s.ended, s.endCheckAt = 0, time.Time{}
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

// recordReading records whether the newest run could be read.
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
