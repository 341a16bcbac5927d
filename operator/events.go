package operator

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// Reasons of events on a SidecarSet.
const (
	eventRolloutStarted = "RolloutStarted"
	// A restart has its own reason: events that differ in their notes alone count
	// as one.
	eventRolloutRestarted = "RolloutRestarted"
	eventRolloutPaused    = "RolloutPaused"
	eventRolloutResumed   = "RolloutResumed"
	eventRolloutComplete  = "RolloutComplete"
	eventNotUpgradable    = "NotUpgradablePods"
	// The other events about what is wrong have the reason of Degraded.
	eventEngineAvailable = "EngineAvailable"

	// actionRollout is the action of every event.
	actionRollout = "Rollout"

	// maxNoteLength is how many bytes of a note the API server takes. It refuses an
	// event with more.
	maxNoteLength = 1024
)

// rolloutEvent is an event that is yet to be recorded on a SidecarSet.
type rolloutEvent struct {
	kind, reason, note string
}

// eventsFor returns the events that a change of status calls for. They come from
// the two statuses alone, so that a restart repeats none; resumed is who ended the last
// hold, nil if that is not known.
func eventsFor(before, after *v1alpha1.SidecarSet, resumed *protocol.Hold) []rolloutEvent {
	var events []rolloutEvent
	was, is := reasonAndMessage(before, v1alpha1.ConditionProgressing), reasonAndMessage(after, v1alpha1.ConditionProgressing)
	switch {
	case pauseBegan(before, after, was.reason, is.reason):
		events = append(events, rolloutEvent{corev1.EventTypeNormal, eventRolloutPaused, is.message})
	case pauseEnded(before, after, was.reason, is.reason):
		events = append(events, rolloutEvent{corev1.EventTypeNormal, eventRolloutResumed, resumeNote(before, after, resumed) + is.message})
	}
	if was.reason != is.reason {
		// A set that has no pods yet has completed nothing.
		if is.reason == v1alpha1.ReasonRolloutComplete && after.Status.MatchedPods > 0 {
			events = append(events, rolloutEvent{corev1.EventTypeNormal, eventRolloutComplete, is.message})
		}
	}
	was, is = reasonAndMessage(before, v1alpha1.ConditionDegraded), reasonAndMessage(after, v1alpha1.ConditionDegraded)
	if is.reason == v1alpha1.ReasonNotUpgradablePods && is != was {
		events = append(events, rolloutEvent{corev1.EventTypeWarning, eventNotUpgradable, is.message})
	}
	return append(events, faultEvents(was, is)...)
}

// pauseBegan also when somebody else holds what is paused already, but not when an outage
// of Temporal ends, which a hold outlives.
func pauseBegan(before, after *v1alpha1.SidecarSet, was, is string) bool {
	held, hold := holdIn(before), holdIn(after)
	switch {
	case is != v1alpha1.ReasonPaused:
		return false
	case hold != nil && held != nil && *hold == *held && isEngineReason(was):
		return false
	default:
		return was != v1alpha1.ReasonPaused || hold != nil && (held == nil || *hold != *held)
	}
}

// pauseEnded also when that was found out at the end of an outage of Temporal.
func pauseEnded(before, after *v1alpha1.SidecarSet, was, is string) bool {
	if is == v1alpha1.ReasonPaused || isEngineReason(is) {
		return false
	}
	return was == v1alpha1.ReasonPaused || isEngineReason(was) && holdIn(before) != nil && holdIn(after) == nil
}

func holdIn(set *v1alpha1.SidecarSet) *v1alpha1.RolloutHold {
	if set.Status.Rollout == nil {
		return nil
	}
	return set.Status.Rollout.Hold
}

// resumeNote names who ended the hold, and why; empty if no hold was ended, but the set
// is paused no more.
func resumeNote(before, after *v1alpha1.SidecarSet, resumed *protocol.Hold) string {
	if resumed == nil || holdIn(before) == nil || holdIn(after) != nil {
		return ""
	}
	return bySignal("resumed", resumed.Who, resumed.Why) + "; "
}

// faultEvents are about Temporal, workers, keys, refused pods and images, by the reason
// alone: counts and causes in the message come and go.
func faultEvents(was, is reasonMessage) (events []rolloutEvent) {
	if is.reason == was.reason {
		return nil
	}
	if isEngineReason(was.reason) && !isEngineReason(is.reason) {
		events = append(events, rolloutEvent{corev1.EventTypeNormal, eventEngineAvailable, "Temporal takes rollouts again"})
	}
	switch is.reason {
	case v1alpha1.ReasonEngineUnavailable, v1alpha1.ReasonEngineThrottled, v1alpha1.ReasonWorkerUnavailable, v1alpha1.ReasonRolloutFailing,
		v1alpha1.ReasonRunUnreadable, podstate.ImagePullBackOff, reasonCannotStart:
		events = append(events, rolloutEvent{corev1.EventTypeWarning, is.reason, is.message})
	}
	return events
}

func isEngineReason(reason string) bool {
	return reason == v1alpha1.ReasonEngineUnavailable || reason == v1alpha1.ReasonEngineThrottled
}

type reasonMessage struct{ reason, message string }

func reasonAndMessage(set *v1alpha1.SidecarSet, kind string) reasonMessage {
	if condition := meta.FindStatusCondition(set.Status.Conditions, kind); condition != nil {
		return reasonMessage{condition.Reason, condition.Message}
	}
	return reasonMessage{}
}

func (r *reconciler) record(set *v1alpha1.SidecarSet, events []rolloutEvent) {
	for _, event := range events {
		r.recorder.Eventf(set, nil, event.kind, event.reason, actionRollout, "%s", boundedNote(event.note))
	}
}

// boundedNote cuts what people or failures said at length.
func boundedNote(note string) string {
	const more = "…"
	if len(note) <= maxNoteLength {
		return note
	}
	return strings.ToValidUTF8(note[:maxNoteLength-len(more)], "") + more
}
