package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube/watches"
	"github.com/outrigger/outrigger/kube/watches/podtest"
)

// statusOf returns the part of the status of a SidecarSet that depends on one pod.
func statusOf(t *testing.T, version *podstate.Version, pod *corev1.Pod) []any {
	t.Helper()
	state, err := version.Of(pod)
	require.NoError(t, err)
	return []any{state, version.FailedStart(pod)}
}

// Only this test fails if the cache drops a field on which status depends.
func TestStatusOfCachedAndWholePodsIsEqual(t *testing.T) {
	transform, broken, changes := watches.NewPodTransform(), 0, 0
	cached := func(pod *corev1.Pod) *corev1.Pod {
		kept, err := transform(pod.DeepCopy())
		require.NoError(t, err)
		return kept.(*corev1.Pod)
	}
	for seed := range int64(60) {
		drawn := podtest.New(seed)
		set := drawn.Set()
		version, err := podstate.NewVersion(set)
		require.NoError(t, err)
		before, other := drawn.Pod(), drawn.Pod()
		whole := rollout.FindBroken(version, []rollout.Pod{{Pod: before}, {Pod: other}})
		kept := rollout.FindBroken(version, []rollout.Pod{{Pod: cached(before)}, {Pod: cached(other)}})
		require.Equal(t, whole, kept, "seed %d", seed)
		broken += whole.Count

		after := before.DeepCopy()
		after.Status = other.Status
		require.Equal(t, statusOf(t, version, after), statusOf(t, version, cached(after)), "seed %d", seed)
		if affectsStatus(cached(before), cached(after)) {
			changes++
			continue
		}
		require.Equal(t, statusOf(t, version, before), statusOf(t, version, after), "seed %d", seed)
	}
	assert.Positive(t, broken)
	assert.Positive(t, changes)
}

// Most changes of a pod do not affect status, so these changes do not requeue a SidecarSet.
func TestChangesOfUncachedFieldsDoNotAffectStatus(t *testing.T) {
	transform, drawn := watches.NewPodTransform(), podtest.New(1)
	before, other := drawn.Pod(), drawn.Pod()
	after := before.DeepCopy()
	after.Spec.Volumes, after.Status.StartTime, after.Status.PodIPs = other.Spec.Volumes, other.Status.StartTime, other.Status.PodIPs
	for i := range after.Status.ContainerStatuses {
		after.Status.ContainerStatuses[i].LastTerminationState = other.Status.ContainerStatuses[i].LastTerminationState
		after.Status.ContainerStatuses[i].ContainerID = "another"
	}
	require.True(t, affectsStatus(before, after), "as they are sent")
	for _, pod := range []*corev1.Pod{before, after} {
		_, err := transform(pod)
		require.NoError(t, err)
	}
	require.False(t, affectsStatus(before, after))
}
