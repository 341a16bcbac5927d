package operator

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func withReasons(progressing, degraded, message string, matched int32) *v1alpha1.SidecarSet {
	set := setAt(generation)
	set.Status.MatchedPods = matched
	for kind, reason := range map[string]string{v1alpha1.ConditionProgressing: progressing, v1alpha1.ConditionDegraded: degraded} {
		if reason != "" {
			set.Status.Conditions = append(set.Status.Conditions, metav1.Condition{Type: kind, Reason: reason, Message: message})
		}
	}
	return set
}

func TestSpec8_EventsFollowFromTheChangeOfStatus(t *testing.T) {
	const running, waiting, paused, complete, fine, stuck = v1alpha1.ReasonRolloutProgress, v1alpha1.ReasonWaitingForPods,
		v1alpha1.ReasonPaused, v1alpha1.ReasonRolloutComplete, v1alpha1.ReasonAsExpected, v1alpha1.ReasonNotUpgradablePods
	const engine = v1alpha1.ReasonTemporalUnavailable
	for _, c := range []struct {
		name          string
		before, after *v1alpha1.SidecarSet
		want          []rolloutEvent
	}{
		{"a new set without pods", setAt(0), withReasons(complete, fine, "m", 0), nil},
		{"a new set whose pods all hold it", setAt(0), withReasons(complete, fine, "m", 2), []rolloutEvent{{"Normal", "RolloutComplete", "m"}}},
		{"progress", withReasons(running, fine, "a", 2), withReasons(waiting, fine, "b", 2), nil},
		{"complete", withReasons(waiting, fine, "a", 2), withReasons(complete, fine, "b", 2), []rolloutEvent{{"Normal", "RolloutComplete", "b"}}},
		{"still complete", withReasons(complete, fine, "a", 2), withReasons(complete, fine, "b", 3), nil},
		{"paused", withReasons(running, fine, "a", 2), withReasons(paused, fine, "b", 2), []rolloutEvent{{"Normal", "RolloutPaused", "b"}}},
		{"still paused", withReasons(paused, fine, "a", 2), withReasons(paused, fine, "b", 2), nil},
		{"resumed", withReasons(paused, fine, "a", 2), withReasons(running, fine, "b", 2), []rolloutEvent{{"Normal", "RolloutResumed", "b"}}},
		{"resumed with nothing left", withReasons(paused, fine, "a", 2), withReasons(complete, fine, "b", 2),
			[]rolloutEvent{{"Normal", "RolloutResumed", "b"}, {"Normal", "RolloutComplete", "b"}}},
		{"not upgradable", withReasons(running, fine, "a", 2), withReasons(running, stuck, "b", 2), []rolloutEvent{{"Warning", "NotUpgradablePods", "b"}}},
		{"the same not upgradable", withReasons(running, stuck, "b", 2), withReasons(waiting, stuck, "b", 2), nil},
		{"others not upgradable", withReasons(running, stuck, "a", 2), withReasons(running, stuck, "b", 2), []rolloutEvent{{"Warning", "NotUpgradablePods", "b"}}},
		{"engine lost", withReasons(running, fine, "a", 2), withReasons(engine, engine, "b", 2), []rolloutEvent{{"Warning", "EngineUnavailable", "b"}}},
		{"engine still lost", withReasons(engine, engine, "a", 2), withReasons(engine, engine, "b", 2), nil},
		{"engine back", withReasons(engine, engine, "a", 2), withReasons(running, fine, "b", 2), []rolloutEvent{{"Normal", "EngineAvailable", "Temporal takes rollouts again"}}},
		{"engine lost while held", withReasons(paused, fine, "a", 2), withReasons(engine, engine, "b", 2), []rolloutEvent{{"Warning", "EngineUnavailable", "b"}}},
		{"engine back, and no workers", withReasons(engine, engine, "a", 2), withReasons("WorkerUnavailable", "WorkerUnavailable", "b", 2),
			[]rolloutEvent{{"Normal", "EngineAvailable", "Temporal takes rollouts again"}, {"Warning", "WorkerUnavailable", "b"}}},
		{"pods refused", withReasons(running, fine, "a", 2), withReasons("RolloutFailing", "RolloutFailing", "b", 2), []rolloutEvent{{"Warning", "RolloutFailing", "b"}}},
		{"broken image", withReasons(waiting, fine, "a", 2), withReasons(waiting, "ImagePullBackOff", "b", 2), []rolloutEvent{{"Warning", "ImagePullBackOff", "b"}}},
		{"more pods with the broken image", withReasons(waiting, "ImagePullBackOff", "a", 2), withReasons(waiting, "ImagePullBackOff", "b", 2), nil},
		{"container that cannot start", withReasons(waiting, fine, "a", 2), withReasons(waiting, "ContainerCannotStart", "b", 2), []rolloutEvent{{"Warning", "ContainerCannotStart", "b"}}},
	} {
		assert.Equal(t, c.want, eventsFor(c.before, c.after, nil), c.name)
	}
}

func TestSpec8_TheEventOfAResumeSaysWhoAndWhy(t *testing.T) {
	withHold := func(reason string, hold *v1alpha1.RolloutPause) *v1alpha1.SidecarSet {
		set := withReasons(reason, v1alpha1.ReasonAsExpected, "counts", 2)
		set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: hold}
		return set
	}
	held, free := withHold(v1alpha1.ReasonPaused, &v1alpha1.RolloutPause{By: "ann"}), withHold(v1alpha1.ReasonRolloutProgress, nil)
	pausedBySpec := withHold(v1alpha1.ReasonPaused, nil)
	bob := &protocol.Pause{By: "bob", Reason: "fixed"}
	for _, c := range []struct {
		name          string
		before, after *v1alpha1.SidecarSet
		resumed       *protocol.Pause
		want          string
	}{
		{"who and why", held, free, bob, "resumed by signal from bob: fixed; counts"},
		{"nobody says who", held, free, &protocol.Pause{}, "resumed by signal; counts"},
		{"a run of an earlier version", held, free, nil, "counts"},
		{"paused by the set, after a hold", pausedBySpec, free, bob, "counts"},
		{"paused by the set, before there was a run", withReasons(v1alpha1.ReasonPaused, v1alpha1.ReasonAsExpected, "m", 2), free, bob, "counts"},
	} {
		assert.Equal(t, []rolloutEvent{{"Normal", "RolloutResumed", c.want}}, eventsFor(c.before, c.after, c.resumed), c.name)
	}
	assert.Empty(t, eventsFor(held, withHold(v1alpha1.ReasonPaused, nil), bob), "the set is still paused")
}

func TestSpec8_EachPauseHasItsEvent(t *testing.T) {
	const running, paused, engine = v1alpha1.ReasonRolloutProgress, v1alpha1.ReasonPaused, v1alpha1.ReasonTemporalUnavailable
	status := func(reason string, hold *v1alpha1.RolloutPause) *v1alpha1.SidecarSet {
		set := withReasons(reason, "", "m", 2)
		set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: hold}
		return set
	}
	ann, bob := &v1alpha1.RolloutPause{By: "ann", Reason: "errors"}, &v1alpha1.RolloutPause{By: "bob", Reason: "holidays"}
	for _, c := range []struct {
		name          string
		before, after *v1alpha1.SidecarSet
		want          []string
	}{
		{"somebody else, too", status(paused, ann), status(paused, bob), []string{"RolloutPaused"}},
		{"a hold of what the set pauses", status(paused, nil), status(paused, bob), []string{"RolloutPaused"}},
		{"the same hold", status(paused, ann), status(paused, &v1alpha1.RolloutPause{By: "ann", Reason: "errors"}), nil},
		{"the set pauses as well, without the hold", status(paused, ann), status(paused, nil), nil},
		{"it outlives an outage", status(engine, ann), status(paused, ann), nil},
		{"another one after an outage", status(engine, ann), status(paused, bob), []string{"RolloutPaused"}},
		{"paused during an outage", status(engine, nil), status(paused, nil), []string{"RolloutPaused"}},
		{"resumed during an outage", status(engine, ann), status(running, nil), []string{"RolloutResumed"}},
		{"an outage that held nothing", status(engine, nil), status(running, nil), nil},
	} {
		var got []string
		for _, event := range eventsFor(c.before, c.after, nil) {
			got = append(got, event.reason)
		}
		assert.Equal(t, c.want, got, c.name)
	}
}

func TestNotesFitIntoEvents(t *testing.T) {
	fits := strings.Repeat("ü", maxNoteLength/2)
	assert.Equal(t, fits, boundedNote(fits))
	assert.Equal(t, strings.Repeat("ü", maxNoteLength/2-2)+"…", boundedNote(fits+"ü"), "no half of a letter")
}
