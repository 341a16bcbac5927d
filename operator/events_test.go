package operator

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/rollout"
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
	const unavailable = v1alpha1.ReasonTemporalUnavailable
	const skipped = "SidecarSet in-place update detected 2 not upgradable pod(s) in this round, will skip them: "
	nextRound := withReasons(running, stuck, "2 of 3", 2)
	nextRound.Status.ObservedGeneration++
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
		{"not upgradable", withReasons(running, fine, "a", 2), withReasons(running, stuck, "2 of 3", 2), []rolloutEvent{{"Normal", "NotUpgradablePods", skipped + "2 of 3"}}},
		{"the same not upgradable", withReasons(running, stuck, "2 of 3", 2), withReasons(waiting, stuck, "2 of 3", 2), nil},
		{"the same number beside another pod", withReasons(running, stuck, "2 of 3", 2), withReasons(running, stuck, "2 of 4", 2), nil},
		{"more not upgradable", withReasons(running, stuck, "1 of 3", 2), withReasons(running, stuck, "2 of 3", 2), []rolloutEvent{{"Normal", "NotUpgradablePods", skipped + "2 of 3"}}},
		{"fewer not upgradable", withReasons(running, stuck, "21 of 30", 2), withReasons(running, stuck, "2 of 3", 2), []rolloutEvent{{"Normal", "NotUpgradablePods", skipped + "2 of 3"}}},
		{"the same not upgradable to the next content", withReasons(running, stuck, "2 of 3", 2), nextRound, []rolloutEvent{{"Normal", "NotUpgradablePods", skipped + "2 of 3"}}},
		{"Temporal lost", withReasons(running, fine, "a", 2), withReasons(unavailable, unavailable, "b", 2), []rolloutEvent{{"Warning", "EngineUnavailable", "b"}}},
		{"Temporal still lost", withReasons(unavailable, unavailable, "a", 2), withReasons(unavailable, unavailable, "b", 2), nil},
		{"Temporal back", withReasons(unavailable, unavailable, "a", 2), withReasons(running, fine, "b", 2), []rolloutEvent{{"Normal", "EngineAvailable", "Temporal is available again"}}},
		{"Temporal lost while paused", withReasons(paused, fine, "a", 2), withReasons(unavailable, unavailable, "b", 2), []rolloutEvent{{"Warning", "EngineUnavailable", "b"}}},
		{"Temporal back, and no workers", withReasons(unavailable, unavailable, "a", 2), withReasons("WorkerUnavailable", "WorkerUnavailable", "b", 2),
			[]rolloutEvent{{"Normal", "EngineAvailable", "Temporal is available again"}, {"Warning", "WorkerUnavailable", "b"}}},
		{"pods rejected", withReasons(running, fine, "a", 2), withReasons("RolloutFailing", "RolloutFailing", "b", 2), []rolloutEvent{{"Warning", "RolloutFailing", "b"}}},
		{"broken image", withReasons(waiting, fine, "a", 2), withReasons(waiting, "ImagePullBackOff", "b", 2), []rolloutEvent{{"Warning", "ImagePullBackOff", "b"}}},
		{"more pods with the broken image", withReasons(waiting, "ImagePullBackOff", "a", 2), withReasons(waiting, "ImagePullBackOff", "b", 2), nil},
		{"rolled back", withReasons(running, fine, "a", 2), withReasons("RollingBack", v1alpha1.ReasonQuarantined, "b", 2), []rolloutEvent{{"Warning", "Quarantined", "b"}}},
		{"paused by a gate", withReasons(running, fine, "a", 2), withReasons(v1alpha1.ReasonGateInconclusive, fine, "b", 2), []rolloutEvent{{"Normal", "RolloutPaused", "b"}}},
		{"resumed after a gate", withReasons(v1alpha1.ReasonGateInconclusive, fine, "a", 2), withReasons(running, fine, "b", 2), []rolloutEvent{{"Normal", "RolloutResumed", "b"}}},
		{"container that cannot start", withReasons(waiting, fine, "a", 2), withReasons(waiting, "ContainerCannotStart", "b", 2), []rolloutEvent{{"Warning", "ContainerCannotStart", "b"}}},
	} {
		assert.Equal(t, c.want, eventsFor(c.before, c.after, nil, 2), c.name)
	}
}

func TestSpec8_TheEventOfAResumeNamesUserAndReason(t *testing.T) {
	withPause := func(reason string, pause *v1alpha1.RolloutPause) *v1alpha1.SidecarSet {
		set := withReasons(reason, v1alpha1.ReasonAsExpected, "counts", 2)
		set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: pause}
		return set
	}
	paused, running := withPause(v1alpha1.ReasonPaused, &v1alpha1.RolloutPause{By: "ann"}), withPause(v1alpha1.ReasonRolloutProgress, nil)
	pausedBySpec := withPause(v1alpha1.ReasonPaused, nil)
	bob := &protocol.Pause{By: "bob", Reason: "fixed"}
	for _, c := range []struct {
		name          string
		before, after *v1alpha1.SidecarSet
		resumed       *protocol.Pause
		want          string
	}{
		{"user and reason", paused, running, bob, "resumed by signal from bob: fixed; counts"},
		{"no user", paused, running, &protocol.Pause{}, "resumed by signal; counts"},
		{"a run of an earlier version", paused, running, nil, "counts"},
		{"paused by the spec, after a pause by signal", pausedBySpec, running, bob, "counts"},
		{"paused by the spec, before there was a run", withReasons(v1alpha1.ReasonPaused, v1alpha1.ReasonAsExpected, "m", 2), running, bob, "counts"},
	} {
		assert.Equal(t, []rolloutEvent{{"Normal", "RolloutResumed", c.want}}, eventsFor(c.before, c.after, c.resumed, 0), c.name)
	}
	assert.Empty(t, eventsFor(paused, withPause(v1alpha1.ReasonPaused, nil), bob, 0), "the spec is still paused")
}

func TestSpec8_EachPauseHasItsEvent(t *testing.T) {
	const running, paused, unavailable = v1alpha1.ReasonRolloutProgress, v1alpha1.ReasonPaused, v1alpha1.ReasonTemporalUnavailable
	status := func(reason string, pause *v1alpha1.RolloutPause) *v1alpha1.SidecarSet {
		set := withReasons(reason, "", "m", 2)
		set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: pause}
		return set
	}
	ann, bob := &v1alpha1.RolloutPause{By: "ann", Reason: "errors"}, &v1alpha1.RolloutPause{By: "bob", Reason: "holidays"}
	for _, c := range []struct {
		name          string
		before, after *v1alpha1.SidecarSet
		want          []string
	}{
		{"another user, too", status(paused, ann), status(paused, bob), []string{"RolloutPaused"}},
		{"a pause by signal of a SidecarSet with a paused spec", status(paused, nil), status(paused, bob), []string{"RolloutPaused"}},
		{"the same pause", status(paused, ann), status(paused, &v1alpha1.RolloutPause{By: "ann", Reason: "errors"}), nil},
		{"the spec is paused, and the run resumed", status(paused, ann), status(paused, nil), nil},
		{"it outlives an outage", status(unavailable, ann), status(paused, ann), nil},
		{"another one after an outage", status(unavailable, ann), status(paused, bob), []string{"RolloutPaused"}},
		{"paused during an outage", status(unavailable, nil), status(paused, nil), []string{"RolloutPaused"}},
		{"no pod remains during the pause", status(paused, ann), status(v1alpha1.ReasonRolloutComplete, ann), []string{"RolloutComplete"}},
		{"resumed during an outage", status(unavailable, ann), status(running, nil), []string{"RolloutResumed"}},
		{"an outage without a pause", status(unavailable, nil), status(running, nil), nil},
	} {
		var got []string
		for _, event := range eventsFor(c.before, c.after, nil, 2) {
			got = append(got, event.reason)
		}
		assert.Equal(t, c.want, got, c.name)
	}
}

func TestTheStartEventNamesImagesPodsAndPause(t *testing.T) {
	set := setAt(0)
	set.Spec.Containers = []v1alpha1.SidecarContainer{fixture.Sidecar("agent"), fixture.Sidecar("proxy")}
	set.Spec.Containers[0].Image, set.Spec.Containers[1].Image = "agent:v2", "proxy:v1"
	const what = "Rolling out generation 3 (agent=agent:v2, proxy=proxy:v1)"
	for _, c := range []struct {
		want  string
		phase protocol.Phase
		pods  int
		pause *v1alpha1.RolloutPause
	}{
		{" to 6 pods, 2 at a time", protocol.PhaseProgressing, 6, nil},
		{" to 1 pod", protocol.PhaseProgressing, 1, nil},
		{": no pod is left to upgrade", protocol.PhaseComplete, 0, nil},
		{" to 6 pods, 2 at a time; paused (updateStrategy.paused)", protocol.PhasePaused, 6, nil},
		{" to 6 pods, 2 at a time; paused by signal from ann: lunch", protocol.PhaseProgressing, 6, &v1alpha1.RolloutPause{By: "ann", Reason: "lunch"}},
		{" to new pods only (updateStrategy.type NotUpdate)", protocol.PhaseNotUpdate, 6, nil},
	} {
		plan := &rollout.Plan{Phase: c.phase, MaxUnavailable: 2, Counts: protocol.Counts{Matched: 6, Remaining: c.pods}}
		assert.Equal(t, what+c.want, startNote(set, plan, c.pause))
	}
}

func TestNotesFitIntoEvents(t *testing.T) {
	fits := strings.Repeat("ü", maxNoteLength/2)
	assert.Equal(t, fits, boundedNote(fits))
	assert.Equal(t, strings.Repeat("ü", maxNoteLength/2-2)+"…", boundedNote(fits+"ü"), "no half of a letter")
}
