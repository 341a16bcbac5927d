package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// These headlines are not phases of a plan.
const (
	headlinePending = "Pending"
	headlineNoPods  = "nothing to do: no pod matches"
	// headlineTerminating is the headline of a SidecarSet that is being deleted.
	headlineTerminating = "Terminating"
	notResponding       = "the run does not respond"
	// unreachableHere replaces the headline Progressing if this command cannot connect to Temporal. The rollout
	// continues if the worker is connected to Temporal.
	unreachableHere = "Progressing (Temporal does not respond to this command)"
)

// facts contains the data that determines the headline. The data comes from a plan, or only from the status.
type facts struct {
	phase protocol.Phase
	// terminating reports whether the SidecarSet is being deleted. The operator does not observe the generation
	// of a deletion.
	terminating bool
	// observed reports whether the operator has observed the generation. If the generation is not observed,
	// progressing and degraded are empty.
	observed bool
	// progressing and degraded are reasons of the conditions Progressing and Degraded. degraded is empty while
	// Degraded or Stalled is False.
	progressing, degraded string
	matched, updated      int
	// unready is the number of updated pods that are not ready.
	unready int
	// step names the current step of a rollout with a RolloutPolicy.
	step string
	// uninjected is the number of pods that match and lack the sidecars.
	uninjected int
	// silent is set if the run does not respond although Temporal responds. unreachable is set if Temporal
	// does not respond.
	silent, unreachable bool
	notUpgradable       bool
	// noSlots is set if maxUnavailable is 0 while pods have to be upgraded.
	noSlots bool
	// late is set if the rollout waits for a pod whose upgrade has been in progress for too long.
	late bool
}

// headline returns the state of a rollout for the commands status, list and why.
func headline(f facts) string {
	found := f.headline()
	if f.unreachable && found == string(protocol.PhaseProgressing) {
		return unreachableHere
	}
	return found
}

// headline returns the state of a rollout. headline ignores unreachable.
func (f *facts) headline() string {
	switch {
	case f.terminating:
		return headlineTerminating
	case f.progressing == v1alpha1.ReasonInvalid:
		return stalled(f.progressing)
	case f.phase == protocol.PhaseNotUpdate, f.phase == protocol.PhasePaused:
		return string(f.phase)
	case !f.observed:
		return headlinePending
	case f.matched == 0:
		return headlineWithoutPods(f.uninjected)
	case f.ofReason() != "":
		return f.ofReason()
	case f.silent && !f.phase.Ended():
		return waits(notResponding)
	case f.phase == protocol.PhaseWaiting:
		return f.waiting()
	case f.phase == protocol.PhaseBaking, f.phase == protocol.PhaseGateRunning, f.phase == protocol.PhaseAwaitingApproval:
		return string(f.phase) + " (" + f.step + ")"
	case f.phase == protocol.PhaseComplete:
		return f.complete()
	}
	return string(f.phase)
}

// complete returns the headline of a rollout that has no pod to upgrade.
func (f *facts) complete() string {
	switch {
	case f.notUpgradable:
		return stalled(v1alpha1.ReasonNotUpgradablePods)
	case f.unready > 0:
		return "Complete (" + rollout.Count(f.unready, "pod") + " not ready)"
	case f.updated < f.matched:
		return "Complete (updateStrategy.selector)"
	}
	return string(f.phase)
}

// ofReason returns the headline for a reason of Progressing that takes precedence over the phase of the plan,
// or an empty string.
func (f *facts) ofReason() string {
	switch {
	case isOutage(f.progressing):
		return waits(f.progressing)
	case isFault(f.progressing):
		return stalled(f.progressing)
	case isRolledBack(f.progressing):
		return f.progressing
	}
	return ""
}

// waiting returns the headline of a rollout that has to wait before the next upgrade.
func (f *facts) waiting() string {
	switch {
	case f.noSlots:
		return waits("maxUnavailable 0")
	case cannotStart(f.degraded):
		return stalled(f.degraded)
	case f.late:
		return waits("pod not ready")
	}
	return string(protocol.PhaseProgressing)
}

// headlineWithoutPods returns the headline while no pod is injected. pods is the number of pods that match.
func headlineWithoutPods(pods int) string {
	switch pods {
	case 0:
		return headlineNoPods
	case 1:
		return "1 pod matches, but has no sidecar"
	}
	return fmt.Sprintf("%d pods match, but have no sidecar", pods)
}

// podsIn reads the number of pods in the message of PodsWithoutSidecar. No other field of the status contains
// this number.
func podsIn(message string) int {
	var pods int
	_, _ = fmt.Sscanf(message, "%d pod", &pods)
	return pods
}

// stalled returns the headline of a rollout that cannot end without a user action, as in the condition Stalled.
func stalled(reason string) string { return "Stalled (" + reason + ")" }

func waits(reason string) string { return "Waiting (" + reason + ")" }

// isOutage reports whether a reason of Progressing is an outage of Temporal or of the workers. The rollout
// continues after the outage.
func isOutage(reason string) bool {
	switch reason {
	case v1alpha1.ReasonTemporalUnavailable, v1alpha1.ReasonTemporalThrottled, v1alpha1.ReasonWorkerUnavailable:
		return true
	}
	return false
}

// isFault reports whether a reason of Progressing means that the rollout cannot continue without a user action.
func isFault(reason string) bool {
	return reason == v1alpha1.ReasonRolloutFailing || reason == v1alpha1.ReasonRunUnreadable
}

// Unfinished reports whether the status of a SidecarSet shows a rollout with an open run and with pods left to
// upgrade.
func Unfinished(set *v1alpha1.SidecarSet) bool {
	c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
	if c == nil || set.Spec.UpdateStrategy.Paused || set.Status.UpdatedPods >= set.Status.MatchedPods {
		return false
	}
	switch c.Reason {
	case v1alpha1.ReasonPaused, v1alpha1.ReasonRolloutProgress, v1alpha1.ReasonWaitingForPods, v1alpha1.ReasonBaking, v1alpha1.ReasonAwaitingApproval,
		v1alpha1.ReasonGateRunning, v1alpha1.ReasonGateInconclusive:
		return true
	}
	return isOutage(c.Reason) || isFault(c.Reason) || isFrozen(c.Reason) || isRolledBack(c.Reason)
}

func headlineTone(headline string) Tone {
	if strings.HasSuffix(headline, "no sidecar") {
		return Bad
	}
	switch word, _, _ := strings.Cut(headline, " "); word {
	case string(protocol.PhaseComplete), string(protocol.PhasePartitionReached):
		if strings.HasSuffix(headline, "not ready)") {
			return Bad
		}
		return Good
	case string(protocol.PhasePaused), string(protocol.PhaseProgressing), string(protocol.PhaseBaking), string(protocol.PhaseGateRunning), string(protocol.PhaseAwaitingApproval), string(protocol.PhaseFrozen), headlinePending, headlineTerminating:
		return Busy
	case "Stalled", "Waiting", v1alpha1.ReasonRollingBack, v1alpha1.ReasonQuarantined:
		return Bad
	}
	return Plain
}

// facts returns the facts of a plan. If the operator has not observed the generation, the conditions are
// ignored.
func (r *Rollout) facts() facts {
	f := facts{
		phase: r.Phase, terminating: r.terminating, observed: r.Observed, matched: r.Counts.Matched, updated: r.Counts.Updated, unready: r.Counts.Updated - r.Counts.UpdatedReady,
		notUpgradable: r.Counts.NotUpgradable > 0, noSlots: r.Limits.Slots == 0 && r.Counts.Remaining > 0,
		step: stepTitle(r.stage), silent: r.notResponding, unreachable: r.unreachable,
		late: r.late != nil,
	}
	for _, c := range r.Conditions {
		switch {
		case !r.Observed:
		case c.Type == v1alpha1.ConditionProgressing && !r.answered(&c):
			f.progressing = c.Reason
		case c.Type == v1alpha1.ConditionDegraded && c.Status == "True":
			f.degraded = c.Reason
		case c.Reason == v1alpha1.ReasonPodsWithoutSidecar:
			f.uninjected = podsIn(c.Message)
		}
	}
	f.rolledBack(r.rollback)
	if slices.ContainsFunc(r.Conditions, func(c Condition) bool { return c.Type == v1alpha1.ConditionStalled && c.Status == "False" }) {
		f.degraded = ""
	}
	return f
}

// answered reports whether a condition states that Temporal does not respond to the operator although the run
// has answered the command. In this case, the condition is older than the answer, or the operator uses another
// Temporal.
func (r *Rollout) answered(c *Condition) bool {
	return r.Run != nil && c.Reason == v1alpha1.ReasonTemporalUnavailable
}

// messageOf returns the message of a condition. If an answer of the run contradicts the condition, messageOf
// adds a note.
func (r *Rollout) messageOf(c *Condition) string {
	if r.answered(c) {
		return c.Message + "; the run has answered this command since"
	}
	// The operator suggests the command undo without a revision.
	if message, found := strings.CutSuffix(c.Message, "kubectl sidecarset undo "+r.Name); found {
		return message + r.undo
	}
	return c.Message
}

// rolledBack sets progressing to reason if the status is older than the rollback of the run. reason is empty
// if the run is not rolled back.
func (f *facts) rolledBack(reason string) {
	if isRolledBack(f.progressing) || reason != "" && f.ofReason() == "" {
		f.progressing = reason
	}
}

// stoppedBy returns the reason of Degraded, or an empty string if the rollout continues.
func (s *Summary) stoppedBy(set *v1alpha1.SidecarSet) string {
	if meta.IsStatusConditionFalse(set.Status.Conditions, v1alpha1.ConditionStalled) {
		return ""
	}
	return s.Degraded
}

// facts returns the facts of the status of a SidecarSet, and of the answer of the run. The answer is newer
// than the status. run may be nil.
func (s *Summary) facts(set *v1alpha1.SidecarSet, run *protocol.RolloutStatus, now time.Time) facts {
	strategy, left := &set.Spec.UpdateStrategy, s.Updated < s.Matched
	f := facts{
		terminating: set.DeletionTimestamp != nil,
		// An operator of an earlier release does not record an invalid generation as observed.
		observed:    set.Status.ObservedGeneration == set.Generation || s.Reason == v1alpha1.ReasonInvalid,
		progressing: s.Reason, degraded: s.stoppedBy(set), matched: int(s.Matched), updated: int(s.Updated),
		unready:       s.unready,
		notUpgradable: s.Reason == v1alpha1.ReasonNotUpgradablePods, uninjected: s.uninjected,
	}
	if !f.observed {
		f.progressing, f.degraded = "", ""
	}
	f.ofStatus(set, left && (strategy.Paused || s.Pause != nil), left && run != nil, now)
	slots, err := rollout.MaxUnavailable(strategy, int(s.Matched))
	f.noSlots = left && err == nil && slots == 0
	return f
}

// ofStatus sets the phase. answered is set if the run answered a query. In this case, paused is the state in
// the run, and otherwise the state in the status.
func (f *facts) ofStatus(set *v1alpha1.SidecarSet, paused, answered bool, now time.Time) {
	switch {
	case set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		f.phase = protocol.PhaseNotUpdate
	case paused && (answered || f.progressing == "" || isOutage(f.progressing) || isFault(f.progressing)):
		f.phase = protocol.PhasePaused
	case answered && phaseOf(f.progressing) == protocol.PhasePaused: // The run was resumed.
		f.phase = protocol.PhaseProgressing
	default:
		f.phase = phaseOf(f.progressing)
		f.betweenSteps(set, now)
	}
}

// betweenSteps sets the phase of a reached step. The bake time of the step may have ended since the operator
// wrote the status, so the phase depends on now.
func (f *facts) betweenSteps(set *v1alpha1.SidecarSet, now time.Time) {
	current := stage.OfStatus(set)
	switch f.progressing {
	case v1alpha1.ReasonBaking, v1alpha1.ReasonGateRunning, v1alpha1.ReasonAwaitingApproval:
	default:
		return
	}
	if current == nil {
		return
	}
	f.step = stepTitle(current)
	f.phase, _ = current.Wait(now)
}

// phaseOf returns the phase of the plan for a reason of Progressing.
func phaseOf(progressing string) protocol.Phase {
	switch progressing {
	case v1alpha1.ReasonPaused, v1alpha1.ReasonGateInconclusive:
		return protocol.PhasePaused
	case v1alpha1.ReasonRolloutComplete, v1alpha1.ReasonNotUpgradablePods:
		return protocol.PhaseComplete
	case v1alpha1.ReasonPartitionReached:
		return protocol.PhasePartitionReached
	case v1alpha1.ReasonWaitingForPods:
		return protocol.PhaseWaiting
	case v1alpha1.ReasonFrozen, v1alpha1.ReasonOutsideWindow, v1alpha1.ReasonAwaitingPermit:
		return protocol.PhaseFrozen
	case v1alpha1.ReasonRollingBack, v1alpha1.ReasonQuarantined:
		return protocol.PhaseQuarantined
	}
	return protocol.PhaseProgressing
}

// pending reports whether the operator has to observe the generation.
func (f *facts) pending() bool { return !f.observed && !f.terminating }

// attention lists the problems that require a user action.
func (f *facts) attention(s *Summary) []string {
	var found []string
	add := func(reason string, needed bool) {
		if needed && reason != "" {
			found = append(found, reason)
		}
	}
	add(s.Degraded, true)
	unexplained := f.ofReason() == "" && !f.phase.Ended()
	add(RunNotResponding, f.silent && unexplained)
	add(temporalNotResponding, f.unreachable && unexplained)
	add(s.Injected, true)
	add(attentionPaused, f.phase == protocol.PhasePaused)
	add(v1alpha1.ReasonAwaitingApproval, f.phase == protocol.PhaseAwaitingApproval)
	add("MaxUnavailableZero", f.noSlots && (f.phase == protocol.PhaseWaiting || f.phase == protocol.PhaseProgressing || f.phase == protocol.PhasePaused))
	add("PodsNotReady", f.phase == protocol.PhaseComplete && f.observed && s.unready > 0 && s.Degraded == "")
	add("NoPods", f.observed && f.matched == 0 && f.uninjected == 0 && f.progressing != v1alpha1.ReasonInvalid)
	add(notObserved, f.pending())
	return found
}
