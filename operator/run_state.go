package operator

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Intervals between two checks of the run of a set that is not finished.
const (
	// minCheckInterval is the shortest, and that while something changes.
	minCheckInterval = time.Second
	// stuckCheckInterval is the longest while the run has work and nothing changes.
	stuckCheckInterval = 8 * time.Second
	// faultCheckInterval is the longest while something may be wrong, or is.
	faultCheckInterval = 4 * time.Second
	// heldCheckInterval is for a run that somebody may resume, or one that waits for
	// pods to migrate between hot twins.
	heldCheckInterval = 5 * time.Second
	// idleCheckInterval is for a run without work.
	idleCheckInterval = 12 * time.Second
	// The run of a set that is finished is checked after minEndCheckInterval, by when
	// nearly all have ended, then after twice as long each time: twins may migrate for
	// hours.
	minEndCheckInterval = 3 * time.Second
	maxEndCheckInterval = 5 * time.Minute
)

const (
	// A run of another generation than the set's is signalled again after
	// minCorrectionBackoff, then twice as long each time.
	minCorrectionBackoff = 5 * time.Second
	maxCorrectionBackoff = 5 * time.Minute
	// A run that waits for a signal is woken at once when there is work, and with
	// this backoff while nothing comes of it: writes may be refused.
	minWakeBackoff = time.Second
	maxWakeBackoff = 10 * time.Minute
)

// runStates holds what status does not of the sets' runs. Losing it with the
// process is harmless: a second start changes nothing.
type runStates struct {
	mu   sync.Mutex
	sets map[string]*runState
}

func newRunStates() *runStates { return &runStates{sets: map[string]*runState{}} }

// of returns the state of a set's run, which only the set's own reconcile uses.
func (s *runStates) of(set *v1alpha1.SidecarSet) *runState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.sets[set.Name]
	if state == nil || state.uid != set.UID {
		state = &runState{uid: set.UID, fault: faultOf(set)}
		if !concernsTemporal(set) {
			state.ended = set.Generation
		}
		s.sets[set.Name] = state
	}
	return state
}

func (s *runStates) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sets, name)
}

// runState is what this process remembers of one set's run.
type runState struct {
	uid types.UID
	// started is the newest generation whose rollout this process started.
	started int64
	// observed is the newest generation of the set, first observed at observedAt.
	observed   int64
	observedAt time.Time
	// finished is the newest generation of which nothing was left to do.
	finished int64
	// ended is the newest generation whose run has ended since. Others are checked at
	// endCheckAt, and endCheckInterval after that.
	ended            int64
	endCheckAt       time.Time
	endCheckInterval time.Duration
	// checkedAt is the time of the last check of the run, checkedCounts and hadWork
	// what there was to do then, and checkInterval the time to the next one unless
	// that changes.
	checkedAt     time.Time
	checkInterval time.Duration
	checkedCounts protocol.Counts
	hadWork       bool
	// wokenAt is the last time the run was woken, and wakeBackoff the time to the next
	// one unless the counts change.
	wokenAt     time.Time
	wakeBackoff time.Duration
	// endedAt is when the run was first seen to have ended though pods wait.
	endedAt time.Time
	// correctedAt is when the run was last signalled its generation, and
	// correctionBackoff the time to the next signal.
	correctedAt       time.Time
	correctionBackoff time.Duration
	// fault is what keeps the run from going on, recorded at faultAt; faultMayChange
	// is set while it is not sure, or not over.
	fault          fault
	faultAt        time.Time
	faultMayChange bool
	tasks          taskAges
}

// observeGeneration records which generation a set has.
func (s *runState) observeGeneration(generation int64, now time.Time) {
	if s.observed != generation {
		s.observed, s.observedAt = generation, now
	}
}

// recordStart records that a rollout was started or signalled.
func (s *runState) recordStart(generation int64, now time.Time) {
	s.started, s.checkedAt, s.checkInterval = generation, now, minCheckInterval
	s.ended, s.endCheckAt = 0, time.Time{}
	s.endedAt, s.correctedAt, s.correctionBackoff = time.Time{}, now, minCorrectionBackoff
}

// recordFinished records that nothing is left to do for a generation.
func (s *runState) recordFinished(generation int64) {
	s.finished, s.endedAt, s.checkedAt = generation, time.Time{}, time.Time{}
	s.fault, s.faultMayChange, s.tasks = fault{}, false, taskAges{}
}

// untilEndCheck returns how long the next check can wait whether the run of a finished
// set has ended; known is true once it has.
func (s *runState) untilEndCheck(generation int64, now time.Time) (left time.Duration, known bool) {
	if s.ended == generation {
		return 0, true
	}
	if s.endCheckAt.IsZero() {
		s.endCheckAt, s.endCheckInterval = now.Add(minEndCheckInterval), 2*minEndCheckInterval
	}
	return s.endCheckAt.Sub(now), false
}

// recordEndCheck records whether the run of a finished set is open.
func (s *runState) recordEndCheck(generation int64, open bool, now time.Time) {
	if open {
		s.endCheckAt, s.endCheckInterval = now.Add(s.endCheckInterval), min(2*s.endCheckInterval, maxEndCheckInterval)
		return
	}
	s.ended, s.endCheckAt, s.wakeBackoff = generation, time.Time{}, 0
}

// untilCheck returns how long the next check can wait.
func (s *runState) untilCheck(o *observation, now time.Time) time.Duration {
	interval := idleCheckInterval
	switch {
	case s.changed(o) && (o.hasWork() || o.hold != nil):
		interval = minCheckInterval
	case o.hold != nil:
		interval = heldCheckInterval
	case o.hasWork():
		interval = max(s.checkInterval, minCheckInterval)
	case o.plan.Counts.Migrating > 0:
		interval = heldCheckInterval
	}
	if s.faultMayChange {
		interval = min(interval, faultCheckInterval)
	}
	return s.checkedAt.Add(interval).Sub(now)
}

// changed reports whether there is something else to do than at the last check.
func (s *runState) changed(o *observation) bool {
	return s.checkedAt.IsZero() || o.plan.Counts != s.checkedCounts || o.hasWork() && !s.hadWork
}

// recordCheck records a check of the run.
func (s *runState) recordCheck(o *observation, now time.Time) {
	if o.unfinished() {
		s.ended, s.endCheckAt = 0, time.Time{}
	}
	if s.changed(o) {
		s.checkInterval, s.wakeBackoff = minCheckInterval, 0
	} else {
		s.checkInterval = min(2*s.checkInterval, stuckCheckInterval)
	}
	s.checkedCounts, s.hadWork, s.checkedAt = o.plan.Counts, o.hasWork(), now
}

// stuck reports whether nothing has changed for a while though the run has work.
func (s *runState) stuck() bool { return s.hadWork && s.checkInterval > minCheckInterval }

// mayWake reports whether to wake a run that waits for a signal, and counts the
// wake if so.
func (s *runState) mayWake(now time.Time) bool {
	if now.Sub(s.wokenAt) < s.wakeBackoff {
		return false
	}
	s.wokenAt, s.wakeBackoff = now, min(max(2*s.wakeBackoff, minWakeBackoff), maxWakeBackoff)
	return true
}

// mayCorrect reports whether to signal a run its generation again, and counts the
// signal if so.
func (s *runState) mayCorrect(now time.Time) bool {
	if now.Sub(s.correctedAt) < s.correctionBackoff {
		return false
	}
	s.correctedAt, s.correctionBackoff = now, min(max(2*s.correctionBackoff, minCorrectionBackoff), maxCorrectionBackoff)
	return true
}

// recordReading records whether the newest run could be read.
func (s *runState) recordReading(found *run, now time.Time) {
	switch {
	case found.unreadable != nil:
		s.recordFault(runUnreadable(found.unreadable), true, now)
	case s.fault.reason == v1alpha1.ReasonRunUnreadable:
		s.recordFault(fault{}, true, now)
	}
}

// recordFault records what keeps the run from going on. The message about one failure
// stays for a while, since each attempt may quote another cause.
func (s *runState) recordFault(found fault, sure bool, now time.Time) {
	s.faultMayChange = !sure || found != fault{}
	switch {
	case !sure, found == s.fault:
	case found.sameFailure(s.fault) && now.Sub(s.faultAt) < minMessageAge:
	default:
		s.fault, s.faultAt = found, now
	}
}
