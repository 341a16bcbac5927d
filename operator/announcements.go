package operator

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Reasons of events on a SidecarSet.
const (
	eventRolloutStarted = "RolloutStarted"
	// Of its own, since events about the same state of a set count as one
	// when only their notes differ.
	eventRolloutRestarted = "RolloutRestarted"
	eventRolloutPaused    = "RolloutPaused"
	eventRolloutResumed   = "RolloutResumed"
	eventRolloutComplete  = "RolloutComplete"
	eventNotUpgradable    = "NotUpgradablePods"

	// actionRollout is what the operator was doing, as events name it.
	actionRollout = "Rollout"
)

// announcement is an event to be.
type announcement struct {
	kind, reason, note string
}

// announcements are the events that a change of status calls for. They come
// from the two statuses alone, so that a restart repeats none.
func announcements(before, after *v1alpha1.SidecarSet) []announcement {
	var all []announcement
	was, is := reasonAndMessage(before, v1alpha1.ConditionProgressing), reasonAndMessage(after, v1alpha1.ConditionProgressing)
	if was.reason != is.reason {
		switch {
		case is.reason == v1alpha1.ReasonPaused:
			all = append(all, announcement{corev1.EventTypeNormal, eventRolloutPaused, is.message})
		case was.reason == v1alpha1.ReasonPaused:
			all = append(all, announcement{corev1.EventTypeNormal, eventRolloutResumed, is.message})
		}
		// A set that has no pods yet has completed nothing.
		if is.reason == v1alpha1.ReasonRolloutComplete && after.Status.MatchedPods > 0 {
			all = append(all, announcement{corev1.EventTypeNormal, eventRolloutComplete, is.message})
		}
	}
	was, is = reasonAndMessage(before, v1alpha1.ConditionDegraded), reasonAndMessage(after, v1alpha1.ConditionDegraded)
	if is.reason == v1alpha1.ReasonNotUpgradablePods && is != was {
		all = append(all, announcement{corev1.EventTypeWarning, eventNotUpgradable, is.message})
	}
	return all
}

type said struct{ reason, message string }

func reasonAndMessage(set *v1alpha1.SidecarSet, kind string) said {
	if condition := meta.FindStatusCondition(set.Status.Conditions, kind); condition != nil {
		return said{condition.Reason, condition.Message}
	}
	return said{}
}

func (r *reconciler) tell(set *v1alpha1.SidecarSet, all []announcement) {
	for _, a := range all {
		r.events.Eventf(set, nil, a.kind, a.reason, actionRollout, "%s", a.note)
	}
}
