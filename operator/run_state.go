package operator

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/operator/runs"
)

// These are the intervals between two checks of the run of a SidecarSet.
const (
	// minCheckInterval is the shortest interval, which applies while the counts change.
	minCheckInterval = time.Second
	// stuckCheckInterval is the longest interval while the run has work and the counts do not change.
	stuckCheckInterval = 8 * time.Second
	// faultCheckInterval is the longest interval while there is a fault, or may be a fault.
	faultCheckInterval = 4 * time.Second
	// pausedCheckInterval is the interval for a paused run, and for a run without work that waits for a
	// hot-upgrade migration, a permit, the next step or a retry.
	pausedCheckInterval = 5 * time.Second
	// idleCheckInterval is the interval for all other runs without work.
	idleCheckInterval = 12 * time.Second
	// endCheckInterval is the interval between the two checks of the run of a finished SidecarSet. A run that
	// is not sleeping detects the end of the rollout without a signal.
	endCheckInterval = 6 * time.Second
	endChecks        = 2
	// endWakes is the maximum number of checks of a finished SidecarSet that wake a sleeping run. A single
	// wake may have no effect, because the cache of the worker may lag behind the cache of the operator.
	endWakes = 4
	// pausedEndCheckInterval is the interval for the paused run of a finished SidecarSet, which
	// may be resumed.
	pausedEndCheckInterval = 5 * time.Minute
	// If status does not record the end of the rollout yet, the operator checks the run after minEndInterval.
	// The interval doubles with each check, up to maxEndInterval.
	minEndInterval = time.Second
	maxEndInterval = 5 * time.Minute
	// lostRunGrace is the time from the end of a run that did not complete until status records the end of
	// the rollout. During this time, the last activity of the run may still write pods.
	lostRunGrace = time.Minute
)

const (
	// If the generation of a run differs from the generation of the SidecarSet, the operator signals the
	// generation again after minCorrectionBackoff. The backoff doubles with each signal, up to
	// maxCorrectionBackoff.
	minCorrectionBackoff = 5 * time.Second
	maxCorrectionBackoff = 5 * time.Minute
	// minWakeInterval is the shortest time between two wakes of a run that has made no progress since the
	// first wake. For example, the API server may reject the writes of the run.
	minWakeInterval = time.Minute
	// minMessageAge is the minimum time between two changes of the message about a failure.
	minMessageAge = time.Minute
)

// runStates contains the state of the run of each SidecarSet, by name. A restart of the process loses the
// states. The loss is harmless, because a second start of the same generation changes nothing.
type runStates struct{ sync.Map }

// of returns the state of the run of a SidecarSet. Only reconciles of this SidecarSet use the state. If the
// generation of set has decreased, etcd was restored from a backup. In this case, of returns a new state,
// because later generations may have other content than the generations that this process has started.
func (s *runStates) of(set *v1alpha1.SidecarSet) *runState {
	if known, ok := s.Load(set.Name); ok && known.(*runState).uid == set.UID && known.(*runState).observed <= set.Generation {
		return known.(*runState)
	}
	state := &runState{uid: set.UID, fault: faultOf(set)}
	if !needsTemporal(set) {
		state.ended = set.Generation
	}
	s.Store(set.Name, state)
	return state
}

// runState is the state of the run of one SidecarSet in this process.
type runState struct {
	uid types.UID
	// started is the newest generation whose rollout this process has started. start is the outcome of this
	// start, with the pause of the earlier run. If the write of status is rejected, the next reconcile uses
	// start again.
	started int64
	start   outcome
	// observed is the newest generation. observedAt is the time at which this process first
	// observed the generation.
	observed   int64
	observedAt time.Time
	// finished is the newest generation whose rollout was finished.
	finished int64
	// ended is the newest finished generation whose run needs no further checks after status has recorded the
	// end.
	ended int64
	end   endCheck
	// checkedAt is the time of the last check of the run. checkedCounts contains the counts at
	// that check, and hadWork is set if the run had work. checkInterval is the time from the last
	// check to the next check, unless counts or work change.
	checkedAt     time.Time
	checkInterval runs.Backoff
	checkedCounts protocol.Counts
	hadWork       bool
	// wokenAt is the time at which the run was last woken. wokenFor contains the counts at that
	// time. needChanged is set if the reasons to wake the run have changed since then.
	wokenAt     time.Time
	wokenFor    protocol.Counts
	needs       need
	needChanged bool
	// frozen is set while the plan is frozen.
	frozen bool
	// endedAt is the time at which the operator first observed that the run has ended although the rollout
	// still needs a run.
	endedAt time.Time
	// mismatched is set after Orphans has found that the run works on another generation, until the next read
	// of the run.
	mismatched bool
	// correctedAt is the time at which the generation was last signalled to the run.
	// correctionBackoff is the time to the next signal.
	correctedAt       time.Time
	correctionBackoff runs.Backoff
	// freezeBackoff is the time to the next wake of a frozen run if the operator cannot read the freeze.
	freezeBackoff runs.Backoff
	// fault is the fault that stops the run, recorded at faultAt. faultMayChange is set while there is a
	// fault, and while the operator cannot determine whether there is a fault.
	fault          runs.Fault
	faultAt        time.Time
	faultMayChange bool
	// waits is the message of a run that waits because of a limit per domain, or because of a
	// PodDisruptionBudget. The operator reads neither nodes nor PodDisruptionBudgets, so the plan of the
	// operator does not contain this reason.
	waits string
	// fleetFault is the reason why the workers cannot receive a permit of the fleet. The operator has
	// no connection to the fleet.
	fleetFault string
	// rejected is the newest error of Temporal that concerns only the run of this SidecarSet.
	rejected error
	tasks    runs.TaskAges
}

// endCheck is the state of the checks of the run of a finished SidecarSet.
type endCheck struct {
	// generation is the finished generation. generation is zero before the first check.
	generation int64
	done       int
	nextAt     time.Time
	interval   runs.Backoff
	// lostSince is the time at which the run was first observed to be closed.
	lostSince time.Time
}

func (s *runState) observeGeneration(generation int64, now time.Time) {
	if s.observed == generation {
		return
	}
	if s.observed != 0 {
		// Faults of the rollout of the previous generation do not apply to this generation.
		s.waits, s.fleetFault = "", ""
		if s.fault.Reason == v1alpha1.ReasonRolloutFailing {
			s.fault, s.faultMayChange = runs.Fault{}, false
		}
	}
	s.observed, s.observedAt = generation, now
}

// readRunAgain causes the next pass of a finished SidecarSet to read the run again, because the run has
// changed, or because the write of the last result into status failed.
func (s *runState) readRunAgain(now time.Time) { s.ended, s.end.nextAt = 0, now }

func (s *runState) recordStart(generation int64, now time.Time) {
	s.started, s.start, s.checkedAt, s.checkInterval = generation, outcome{}, now, runs.Backoff(minCheckInterval)
	s.finished, s.ended, s.end, s.rejected = 0, 0, endCheck{}, nil
	s.endedAt, s.correctedAt, s.correctionBackoff = time.Time{}, now, runs.Backoff(minCorrectionBackoff)
	s.wokenAt = time.Time{}
}

func (s *runState) recordFinished(generation int64) {
	s.finished, s.endedAt, s.checkedAt = generation, time.Time{}, time.Time{}
	s.fault, s.faultMayChange, s.tasks, s.rejected = runs.Fault{}, false, runs.TaskAges{}, nil
}

// untilEndCheck returns the time until the next check whether the run of a finished SidecarSet
// has ended. due is false if no further check is needed. toRecord is set while status does not
// record the end.
func (s *runState) untilEndCheck(generation int64, toRecord bool, now time.Time) (left time.Duration, due bool) {
	if s.end.generation != generation {
		s.end = endCheck{generation: generation, nextAt: now}
	}
	return s.end.nextAt.Sub(now), s.ended != generation || toRecord
}

// recordEndCheck records a check of the run of a finished SidecarSet, and reports whether the run has ended.
// Status may record the end only if ended is true. Status records the end before another run begins, so that
// each pod that a later run upgrades contains a later resourceVersion of the SidecarSet.
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

// untilCheck returns the time until the next check of the run.
func (s *runState) untilCheck(o *observation, now time.Time) time.Duration {
	interval := idleCheckInterval
	switch {
	case s.changed(o) && (o.hasWork() || o.unhealthy || o.pause != nil || o.awaitsPermit() || o.plan.Phase == protocol.PhaseStepReached || o.plan.Phase == protocol.PhaseQuarantined):
		interval = minCheckInterval
	case o.pause != nil:
		interval = pausedCheckInterval
	case o.hasWork():
		interval = max(time.Duration(s.checkInterval), minCheckInterval)
	case o.plan.Counts.Migrating > 0, o.awaitsPermit(), o.plan.Phase == protocol.PhaseStepReached, o.plan.Phase == protocol.PhaseQuarantined:
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

// stuck reports whether nothing has changed between the last two checks although the run has work.
func (s *runState) stuck() bool { return s.hadWork && s.checkInterval > runs.Backoff(minCheckInterval) }

// runCounts returns the counts that only the run changes. The other counts also change because of other pods.
func runCounts(c protocol.Counts) [4]int {
	return [4]int{c.Remaining, c.Converging, c.Migrating, c.Migrated}
}

func (s *runState) recordNeed(needs need) {
	if needs != s.needs {
		s.needs, s.needChanged = needs, true
	}
}

// mayWake reports whether to wake a run that waits for a signal, and if so, records the wake. Unchanged counts
// do not wake the run again, because the run also plans at its next timer. If only the number of unavailable
// pods or the reasons to wake the run have changed, the run is woken at most once per minWakeInterval. For
// example, the last wake may have found no slot, because another pod had just become unavailable. If budgets
// is set, the same interval applies if only the number of ready pods has changed.
func (s *runState) mayWake(counts protocol.Counts, budgets bool, now time.Time) bool {
	changed := s.needChanged || counts.Unavailable != s.wokenFor.Unavailable || budgets && counts.Ready != s.wokenFor.Ready
	again := changed && now.Sub(s.wokenAt) >= minWakeInterval
	if !s.wokenAt.IsZero() && runCounts(counts) == runCounts(s.wokenFor) && !again {
		return false
	}
	s.wokenAt, s.wokenFor, s.needChanged = now, counts, false
	return true
}

// recordFrozen records whether the plan is frozen. At the start and at the end of a freeze, the run is checked
// and woken immediately, although the counts have not changed.
func (s *runState) recordFrozen(frozen bool) {
	if s.frozen != frozen {
		s.hadWork, s.wokenAt, s.frozen, s.freezeBackoff = false, time.Time{}, frozen, 0
	}
}

// forgetWake permits another wake of a frozen run, with a backoff. Without the backoff, the run would be
// woken too often if the workers observe a freeze that the operator cannot read.
func (s *runState) forgetWake(now time.Time) {
	if now.Sub(s.wokenAt) >= time.Duration(s.freezeBackoff) {
		s.wokenAt = time.Time{}
		s.freezeBackoff.Next(minCorrectionBackoff, maxCorrectionBackoff)
	}
}

// mayCorrect reports whether to signal the generation to a run again, and if so, starts the next backoff.
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

// recordFault records the fault that stops the run. The message about a failure changes at most once per
// minMessageAge, because each attempt may fail for another reason.
func (s *runState) recordFault(found runs.Fault, sure bool, now time.Time) {
	s.faultMayChange = !sure || found != runs.Fault{}
	switch {
	case !sure, found == s.fault:
	case found.SameFailure(s.fault) && now.Sub(s.faultAt) < minMessageAge:
	default:
		s.fault, s.faultAt = found, now
	}
}

// faultOf reads the fault from the status of a SidecarSet. faultOf ignores reason RolloutFailing of an earlier
// generation.
func faultOf(set *v1alpha1.SidecarSet) runs.Fault {
	switch degraded := reasonAndMessage(set, v1alpha1.ConditionDegraded); degraded.reason {
	case v1alpha1.ReasonRolloutFailing:
		if set.Status.ObservedGeneration != set.Generation {
			return runs.Fault{}
		}
		fallthrough
	case v1alpha1.ReasonWorkerUnavailable, v1alpha1.ReasonRunUnreadable:
		return runs.Fault{Reason: degraded.reason, Message: strings.TrimSuffix(degraded.message, faultNext(set.Name, degraded.reason, degraded.message))}
	}
	return runs.Fault{}
}

// rolloutStarted reports whether Temporal has accepted the generation of a SidecarSet.
func rolloutStarted(set *v1alpha1.SidecarSet) bool {
	return set.Status.Rollout != nil && set.Status.Rollout.Generation == set.Generation
}

// needsTemporal reports whether a SidecarSet is requeued when Temporal becomes unavailable or available.
// needsTemporal returns false if status shows a rollout without pods to upgrade. A later change of the reason
// of Progressing, of the pause or of the generation requeues the SidecarSet.
func needsTemporal(set *v1alpha1.SidecarSet) bool {
	progressing := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
	if !rolloutStarted(set) || set.Status.Rollout.Pause != nil || progressing == nil {
		return true
	}
	return !slices.Contains([]string{
		v1alpha1.ReasonRolloutComplete, v1alpha1.ReasonPartitionReached, v1alpha1.ReasonNotUpgradablePods, v1alpha1.ReasonNotUpdate, v1alpha1.ReasonInvalid,
	}, progressing.Reason)
}
