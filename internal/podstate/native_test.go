package podstate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// upgradedNative returns a pod whose native sidecar was patched from v1 to v2. The ordinary init container of
// the pod ran with an image that differs from the spec.
func upgradedNative(status corev1.ContainerStatus) *corev1.Pod {
	pod := upgraded(func(p *corev1.Pod, _ *corev1.ContainerStatus) {
		p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"s":{"revision":"new","updateTimestamp":"2024-01-02T12:00:00Z","lastContainerStatuses":{"mesh":{"imageID":"id-1","restartCount":2}}}}`
	})
	pod.Spec.Containers, pod.Status.ContainerStatuses = pod.Spec.Containers[:1], pod.Status.ContainerStatuses[:1]
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "first", Image: "first:v1"},
		{Name: "mesh", Image: "mesh:v2", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	status.Name = "mesh"
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "first", Image: "first:v0", ImageID: "id-0"}, status}
	return pod
}

func TestSpec9_1_NativeSidecarsAreReadFromTheStatusesOfInitContainers(t *testing.T) {
	version := &Version{Set: "s", Hash: "new", HashWithoutImage: "blank", Sidecars: []Sidecar{{Name: "mesh", Image: "mesh:v2", Native: true}}}
	for name, c := range map[string]struct {
		status        corev1.ContainerStatus
		taken, failed bool
	}{
		"as it was":          {corev1.ContainerStatus{Image: "mesh:v1", ImageID: "id-1", RestartCount: 2}, false, false},
		"runs the new image": {corev1.ContainerStatus{Image: "mesh:v2", ImageID: "id-2", RestartCount: 3}, true, false},
		"same digest, anew":  {corev1.ContainerStatus{Image: "mesh:v1", ImageID: "id-1", RestartCount: 3}, true, false},
		"is being created":   {corev1.ContainerStatus{Image: "mesh:v2", RestartCount: 2}, false, false},
		"its image is not there": {corev1.ContainerStatus{Image: "mesh:v1", ImageID: "id-1", RestartCount: 2,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}, false, true},
	} {
		state, err := version.Of(upgradedNative(c.status))
		require.NoError(t, err)
		assert.True(t, state.Complete && state.Updated && state.Upgradable, name)
		assert.Equal(t, c.taken, state.Consistent, name)
		assert.Equal(t, c.failed, state.Failed, name)
		assert.Equal(t, !c.taken, state.UnavailableByUpgrade(), "%s: a kubelet that takes up nothing holds the slot, whoever serves", name)
	}
}

// An init container without restartPolicy Always is not a native sidecar, but may belong to the app or to an
// older version of the SidecarSet.
func TestSpec9_1_AnInitContainerThatEndsIsNoNativeSidecar(t *testing.T) {
	pod := upgradedNative(corev1.ContainerStatus{})
	assert.NotNil(t, Container(pod, "mesh", true))
	assert.Nil(t, Container(pod, "mesh", false))
	assert.Nil(t, Container(pod, "first", true))
	assert.NotNil(t, Container(pod, "app", false))
	var natives []string
	for container, status := range Natives(pod) {
		natives = append(natives, container.Name+" "+status.Name)
	}
	assert.Equal(t, []string{"mesh mesh"}, natives)
}

func TestSpec7_7_MigrationWaitsForNativeSidecarsAlone(t *testing.T) {
	version := &Version{Set: "s", Sidecars: []Sidecar{{Name: "envoy", EmptyImage: "empty:1"}, {Name: "mesh", Native: true}}}
	pod := upgradedNative(corev1.ContainerStatus{Ready: true, Image: "mesh:v2", ImageID: "id-2"})
	pod.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] = `{"envoy":"envoy-2"}`
	pod.Annotations[v1alpha1.VersionAnnotationPrefix+"envoy-1"] = "7"
	pod.Spec.Containers = []corev1.Container{{Name: "envoy-1", Image: "envoy:1"}, {Name: "envoy-2", Image: "envoy:2"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "envoy-1"}, {Name: "envoy-2", Ready: true}}
	migrated := func() bool {
		state, err := version.Of(pod)
		require.NoError(t, err)
		require.True(t, state.Migrating)
		return state.Migrated
	}
	assert.True(t, migrated(), "an init container that ended is not waited for")
	pod.Status.InitContainerStatuses[1].Ready = false
	assert.False(t, migrated(), "not ready")
	pod.Status.InitContainerStatuses = nil
	assert.False(t, migrated(), "not reported")
}
