package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// withHealth returns a pod with a condition Ready and an app container.
func withHealth(name string, state podstate.State, ready bool, restarts int32) Pod {
	return newPod(name, state, func(pod *corev1.Pod) {
		condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(noon.Add(7 * time.Hour))}
		if ready {
			condition.Status = corev1.ConditionTrue
		}
		pod.Status.Conditions = []corev1.PodCondition{condition}
		pod.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: "side", Image: "side:v2", Env: []corev1.EnvVar{{Name: v1alpha1.InjectedEnv, Value: "true"}}}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: restarts}, {Name: "side", RestartCount: 9}}
	})
}

var fiveMinutes = &protocol.Step{UnreadyFor: 5 * time.Minute, AppRestarts: 2}

// observeAt observes one pod at the given number of minutes after noon.
func observeAt(h *Health, minutes int, pod Pod) (unhealthy string, next time.Duration) {
	pods := []Pod{pod}
	next = h.Observe("logs", "new", pods, fiveMinutes, noon.Add(time.Duration(minutes)*time.Minute))
	return pods[0].Unhealthy.describe(fiveMinutes), next
}

func TestSpec11_6_APodIsUnhealthyOnceItHasNotBeenReadyForSoLong(t *testing.T) {
	var h Health
	expect := func(minutes int, pod Pod, unhealthy string, next time.Duration) {
		t.Helper()
		got, again := observeAt(&h, minutes, pod)
		assert.Equal(t, unhealthy, got)
		assert.Equal(t, next, again)
	}
	down := withHealth("a", restart, false, 0)
	expect(0, withHealth("a", updated, true, 0), "", 0)
	expect(60, down, "", 5*time.Minute)
	expect(63, down, "", 2*time.Minute)
	expect(65, down, "not ready for 5m", 0)
	expect(66, withHealth("a", updated, true, 0), "", 0)
	expect(67, down, "", 5*time.Minute)
	flapped := withHealth("a", restart, false, 0)
	flapped.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon)
	expect(72, flapped, "", 5*time.Minute)

	h = Health{}
	expect(0, withHealth("a", previous, false, 0), "", 5*time.Minute)
	expect(9, withHealth("a", restart, false, 0), "", 5*time.Minute)
	expect(14, withHealth("a", restart, false, 0), "not ready for 5m", 0)

	h = Health{}
	expect(0, withHealth("a", oldDown, false, 0), "", 5*time.Minute)
	expect(5, withHealth("a", deadWhen, false, 0), "not ready for 5m", 0)
	h.Forget("logs")
	expect(6, withHealth("a", deadWhen, false, 0), "", 5*time.Minute)
}

// The pods of a node that responds again do not become ready at the same time.
func TestSpec11_6_APodOfTheControlGroupRecoversForAsLong(t *testing.T) {
	var h Health
	recovers := func(minutes int, pod Pod) (bool, time.Duration) {
		pods := []Pod{pod}
		next := h.Observe("logs", "new", pods, fiveMinutes, noon.Add(time.Duration(minutes)*time.Minute))
		return pods[0].Recovering, next
	}
	for _, dead := range []podstate.State{oldDown, deadWhen} {
		h = Health{}
		for _, c := range []struct {
			minutes    int
			pod        Pod
			recovering bool
			next       time.Duration
		}{
			{0, withHealth("a", dead, false, 0), false, 5 * time.Minute},
			{5, withHealth("a", dead, false, 0), false, 0},
			{6, withHealth("a", updated, true, 0), true, 5 * time.Minute},
			{10, withHealth("a", updated, true, 0), true, time.Minute},
			{11, withHealth("a", updated, true, 0), false, 0},
		} {
			recovering, next := recovers(c.minutes, c.pod)
			assert.Equal(t, c.recovering, recovering, c.minutes)
			assert.Equal(t, c.next, next, c.minutes)
		}
	}
	h = Health{}
	for minutes, pod := range []Pod{0: withHealth("a", restart, false, 0), 9: withHealth("a", restart, false, 0), 10: withHealth("a", updated, true, 0)} {
		if pod.Pod != nil {
			recovering, _ := recovers(minutes, pod)
			assert.False(t, recovering, "a pod that its upgrade made unavailable is in no control group")
		}
	}
}

func TestSpec11_6_RestartsOfTheAppCountFromTheUpgradeOn(t *testing.T) {
	var h Health
	for _, c := range []struct {
		state     podstate.State
		restarts  int32
		unhealthy string
	}{
		{old, 7, ""},
		{old, 8, ""},
		{updated, 9, ""},
		{updated, 10, "the app restarted at least 2 times"},
		{updated, 0, ""},
		{updated, 1, ""},
		{updated, 2, "the app restarted at least 2 times"},
	} {
		got, _ := observeAt(&h, 0, withHealth("a", c.state, true, c.restarts))
		assert.Equal(t, c.unhealthy, got)
	}
	pods := []Pod{withHealth("a", updated, true, 20)}
	h.Observe("logs", "newer", pods, fiveMinutes, noon)
	assert.Zero(t, pods[0].Unhealthy, "the counts of other content start again")
}

// The pods of both versions on one node become unready.
func TestSpec11_6_PodsThatAreUnhealthyUnderBothVersionsDoNotCount(t *testing.T) {
	set := unavailable(intstr.FromInt32(9))
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v2"}}}
	version, err := podstate.NewVersion(set)
	require.NoError(t, err)
	unhealthy := func(state podstate.State, n int) []Pod {
		pods := serving(state, n)
		for i := range pods {
			pods[i].Unhealthy = UnreadyTooLong
		}
		return pods
	}
	recovering := func(state podstate.State, n int) []Pod {
		pods := serving(state, n)
		for i := range pods {
			pods[i].Recovering = true
		}
		return pods
	}
	join := func(groups ...[]Pod) (all []Pod) {
		for _, pods := range groups {
			all = append(all, pods...)
		}
		return all
	}
	for _, c := range []struct {
		name   string
		pods   []Pod
		failed int
	}{
		{"only upgraded pods", join(unhealthy(restart, 5), serving(updated, 45), serving(old, 50)), 5},
		{"a tenth of both versions", join(unhealthy(restart, 5), serving(updated, 45), unhealthy(oldDown, 5), serving(old, 45)), 0},
		{"the dead pods of the older version are upgraded first", join(unhealthy(restart, 5), serving(updated, 45), unhealthy(deadWhen, 5), serving(old, 45)), 0},
		{"pods that were unavailable before their upgrade", join(unhealthy(deadWhen, 5), serving(updated, 45), serving(old, 50)), 0},
		{"only a dead pod of the older version is left", join(unhealthy(restart, 9), unhealthy(deadWhen, 1)), 8},
		{"few pods of the older version are left", join(unhealthy(restart, 16), serving(updated, 79), unhealthy(deadWhen, 1), serving(old, 5)), 15},
		{"the pods of the older version are ready first", join(unhealthy(restart, 5), serving(updated, 45), recovering(old, 5), serving(old, 45)), 0},
		{"the pods that were unavailable before their upgrade are ready first", join(unhealthy(restart, 5), serving(updated, 90), recovering(updated, 5)), 0},
		{"more upgraded pods", join(unhealthy(restart, 8), serving(updated, 42), unhealthy(oldDown, 5), serving(old, 45)), 3},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.failed, FindFailed(version, c.pods, fiveMinutes).Count) })
	}
	broken := failing(deadWhen, 1)
	broken[0].Unhealthy, broken[0].Recovering = UnreadyTooLong, true
	assert.Equal(t, 1, FindFailed(version, broken, fiveMinutes).Count, "a sidecar that cannot start fails its pod in any case")
	assert.Equal(t, "not ready for 5m", FindFailed(version, unhealthy(restart, 1), fiveMinutes).Detail)
}
