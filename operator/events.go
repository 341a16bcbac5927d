package operator

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

// These are the reasons of events on a SidecarSet.
const (
	eventRolloutStarted = "RolloutStarted"
	// A restart has a separate reason, because the event recorder merges events that differ only in the note.
	eventRolloutRestarted = "RolloutRestarted"
	eventRolloutPaused    = "RolloutPaused"
	eventRolloutResumed   = "RolloutResumed"
	eventRolloutComplete  = "RolloutComplete"
	eventNotUpgradable    = "NotUpgradablePods"
	eventRevisionFailed   = "RevisionFailed"
	// eventEngineAvailable is the reason of the event at the end of an outage of Temporal. Other events
	// about faults have the reason of the condition Degraded.
	eventEngineAvailable = "EngineAvailable"

	// maxNoteLength is the maximum number of bytes of a note. The API server rejects an event with a
	// longer note.
	maxNoteLength = 1024
)

// rolloutEvent is an event that the status step records on a SidecarSet.
type rolloutEvent struct {
	kind, reason, note string
}

// eventsFor returns the events for a change of status. eventsFor compares only the statuses of before and
// after, so that a restarted operator does not record an event twice. resumed is the resume that ended the
// last pause, or nil if the resume is not known. notUpgradable is the number of pods that cannot be upgraded
// in place.
func eventsFor(before, after *v1alpha1.SidecarSet, resumed *protocol.Pause, notUpgradable int) []rolloutEvent {
	var events []rolloutEvent
	was, is := reasonAndMessage(before, v1alpha1.ConditionProgressing), reasonAndMessage(after, v1alpha1.ConditionProgressing)
	switch {
	case pauseBegan(before, after, was.reason, is.reason):
		events = append(events, rolloutEvent{corev1.EventTypeNormal, eventRolloutPaused, is.message})
	case pauseEnded(before, after, was.reason, is.reason):
		events = append(events, rolloutEvent{corev1.EventTypeNormal, eventRolloutResumed, resumeNote(before, after, resumed) + is.message})
	}
	// No event is recorded for a SidecarSet without matched pods, because no pod was upgraded.
	if was.reason != is.reason && is.reason == v1alpha1.ReasonRolloutComplete && after.Status.MatchedPods > 0 {
		events = append(events, rolloutEvent{corev1.EventTypeNormal, eventRolloutComplete, is.message})
	}
	was, is = reasonAndMessage(before, v1alpha1.ConditionDegraded), reasonAndMessage(after, v1alpha1.ConditionDegraded)
	newRound := before.Status.ObservedGeneration != after.Status.ObservedGeneration
	// The message begins with the number of pods that are not upgradable. Other changes of the message cause
	// no event.
	number, _, _ := strings.Cut(is.message, " ")
	sameNumber := was.reason == is.reason && strings.HasPrefix(was.message, number+" ")
	if is.reason == v1alpha1.ReasonNotUpgradablePods && (!sameNumber || newRound) {
		// For compatibility, the note begins with the note that OpenKruise records.
		note := fmt.Sprintf("SidecarSet in-place update detected %d not upgradable pod(s) in this round, will skip them: %s", notUpgradable, is.message)
		events = append(events, rolloutEvent{corev1.EventTypeNormal, eventNotUpgradable, note})
	}
	return append(events, faultEvents(was, is)...)
}

// startNote returns the note of the event about the start of a rollout. pause is the initial pause of the
// rollout, or nil.
func startNote(set *v1alpha1.SidecarSet, plan *rollout.Plan, pause *v1alpha1.RolloutPause) string {
	note := fmt.Sprintf("Rolling out generation %d (%s)", set.Generation, strings.Join(imagesOf(&set.Spec), ", "))
	pods := plan.Counts.Remaining
	switch {
	case plan.Phase == protocol.PhaseNotUpdate:
		return note + " to new pods only (updateStrategy.type NotUpdate)"
	case pods == 0:
		return note + ": no pod is left to upgrade"
	case pods == 1:
		note += " to 1 pod"
	default:
		note += fmt.Sprintf(" to %d pods, %d at a time", pods, min(pods, plan.MaxUnavailable))
	}
	switch {
	case plan.Phase == protocol.PhasePaused:
		note += "; paused (updateStrategy.paused)"
	case plan.Frozen != "":
		note += "; " + plan.Frozen
	case pause != nil:
		note += "; " + signalOf(pause).Sentence()
	}
	return note
}

// pauseBegan reports whether a pause began. A pause with another user or another reason is a new pause. A
// pause that continues after an outage of Temporal is not a new pause.
func pauseBegan(before, after *v1alpha1.SidecarSet, was, is string) bool {
	earlier, pause := pauseIn(before), pauseIn(after)
	switch {
	case !isPauseReason(is):
		return false
	case pause != nil && earlier != nil && *pause == *earlier && isTemporalReason(was):
		return false
	default:
		return !isPauseReason(was) || pause != nil && (earlier == nil || *pause != *earlier)
	}
}

// pauseEnded reports whether a pause ended. During an outage of Temporal, status does not show the end of a
// pause. In this case, pauseEnded returns true after the outage.
func pauseEnded(before, after *v1alpha1.SidecarSet, was, is string) bool {
	// If no pod needs an upgrade, the reason of Progressing does not show the current pause.
	if isPauseReason(is) || isTemporalReason(is) || pauseIn(after) != nil || after.Spec.UpdateStrategy.Paused {
		return false
	}
	return isPauseReason(was) || isTemporalReason(was) && pauseIn(before) != nil && pauseIn(after) == nil
}

func pauseIn(set *v1alpha1.SidecarSet) *v1alpha1.RolloutPause {
	if set.Status.Rollout == nil {
		return nil
	}
	return set.Status.Rollout.Pause
}

// resumeNote returns the note about the user and the reason of a resume by signal. The note is empty if no
// pause by signal has ended, or if resumed is nil.
func resumeNote(before, after *v1alpha1.SidecarSet, resumed *protocol.Pause) string {
	if resumed == nil || pauseIn(before) == nil || pauseIn(after) != nil {
		return ""
	}
	return "resumed by signal" + resumed.Details() + "; "
}

// faultEvents returns the events about faults of Temporal, of workers, of runs and of containers. was and
// is are the condition Degraded before and after. Only a new reason causes an event, because the counts and
// the causes in the message change often.
func faultEvents(was, is reasonMessage) (events []rolloutEvent) {
	if is.reason == was.reason {
		return nil
	}
	if isTemporalReason(was.reason) && !isTemporalReason(is.reason) {
		events = append(events, rolloutEvent{corev1.EventTypeNormal, eventEngineAvailable, "Temporal is available again"})
	}
	switch is.reason {
	case v1alpha1.ReasonTemporalUnavailable, v1alpha1.ReasonTemporalThrottled, v1alpha1.ReasonWorkerUnavailable, v1alpha1.ReasonRolloutFailing,
		v1alpha1.ReasonRunUnreadable, v1alpha1.ReasonQuarantined, podstate.ImagePullBackOff, v1alpha1.ReasonContainerCannotStart:
		events = append(events, rolloutEvent{corev1.EventTypeWarning, is.reason, is.message})
	}
	return events
}

// isPauseReason reports whether a reason of Progressing shows a pause. A gate without a clear result pauses
// the run.
func isPauseReason(reason string) bool {
	return reason == v1alpha1.ReasonPaused || reason == v1alpha1.ReasonGateInconclusive
}

func isTemporalReason(reason string) bool {
	return reason == v1alpha1.ReasonTemporalUnavailable || reason == v1alpha1.ReasonTemporalThrottled
}

type reasonMessage struct{ reason, message string }

func reasonAndMessage(set *v1alpha1.SidecarSet, kind string) reasonMessage {
	if condition := meta.FindStatusCondition(set.Status.Conditions, kind); condition != nil {
		return reasonMessage{condition.Reason, condition.Message}
	}
	return reasonMessage{}
}

// boundedNote shortens note to maxNoteLength bytes. A note may be long because of a quoted reason or
// failure.
func boundedNote(note string) string { return protocol.Shortened(note, maxNoteLength) }
