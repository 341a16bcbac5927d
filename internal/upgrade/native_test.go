package upgrade

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// nativePod returns a pod that was injected with an ordinary init container, a native sidecar and a container.
// The app has another native sidecar.
func nativePod() *corev1.Pod {
	pod := injected()
	always := new(corev1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "first", Image: "first:1"}, {Name: "mesh", Image: "mesh:1", RestartPolicy: always}, {Name: "own", Image: "mesh:1", RestartPolicy: always},
	}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{
		{Name: "first", Image: "first:1", ImageID: "id-first"}, {Name: "mesh", Image: "mesh:1", ImageID: "id-mesh", RestartCount: 4}, {Name: "own"},
	}
	return pod
}

func nativeTarget(image string) Target {
	target := target()
	target.Sidecars = append(target.Sidecars, podstate.Sidecar{Name: "mesh", Image: image, Native: true})
	return target
}

func initImages(pod *corev1.Pod) []string {
	var found []string
	for _, c := range pod.Spec.InitContainers {
		found = append(found, c.Name+" "+c.Image)
	}
	return found
}

func TestSpec9_1_NativeSidecarsGetTheirImagesInTheSameWrite(t *testing.T) {
	target := nativeTarget("mesh:2")
	patch, err := Patch(nativePod(), target, now)
	require.NoError(t, err)
	pod := apply(t, nativePod(), patch)
	assert.Equal(t, []string{"first first:1", "mesh mesh:2", "own mesh:1"}, initImages(pod))
	assert.Equal(t, []string{"app:1", "same:1", "z:2"}, images(pod))
	want := nativePod().Spec
	want.InitContainers[1].Image, want.Containers[2].Image = "mesh:2", "z:2"
	assert.Equal(t, want, pod.Spec, "nothing else changes")
	states, err := record.InPlaceStates(pod.Annotations)
	require.NoError(t, err)
	assert.Equal(t, map[string]record.ContainerStatus{
		"mesh": {ImageID: "id-mesh", RestartCount: new(int32(4)), Image: "mesh:1"}, "z": {ImageID: "id-1", RestartCount: new(int32(2)), Image: "z:1"},
	}, states["s"].LastContainerStatuses)
	hashes, err := record.Hashes(pod.Annotations)
	require.NoError(t, err)
	assert.Equal(t, []string{"mesh", "same", "z"}, hashes["s"].SidecarList)

	// The pod takes a slot until the kubelet has started both images.
	pod.Status.ContainerStatuses[0].RestartCount++
	assert.True(t, state(t, pod, target).UnavailableByUpgrade())
	pod.Status.InitContainerStatuses[1] = corev1.ContainerStatus{Name: "mesh", Image: "mesh:2", ImageID: "id-mesh-2", RestartCount: 5}
	assert.True(t, state(t, pod, target).Converged())
}

// A kubelet before 1.33 does not start the new image of the native sidecar. The image of container z cannot be
// pulled, and the next version changes only this image.
func TestSpec9_1_APendingNativeSidecarTakesASlotAfterTheNextUpgrade(t *testing.T) {
	broken := nativeTarget("mesh:2")
	patch, err := Patch(nativePod(), broken, now)
	require.NoError(t, err)
	pod := apply(t, nativePod(), patch)
	pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}

	mended := nativeTarget("mesh:2")
	mended.Version.Hash, mended.Sidecars[0].Image = "h3", "z:3"
	patch, err = Patch(pod, mended, now)
	require.NoError(t, err)
	pod = apply(t, pod, patch)
	pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "z", Image: "z:3", ImageID: "id-3", RestartCount: 3, Ready: true}
	assert.True(t, state(t, pod, mended).UnavailableByUpgrade())
	pod.Status.InitContainerStatuses[1] = corev1.ContainerStatus{Name: "mesh", Image: "mesh:2", ImageID: "id-mesh-2", RestartCount: 5}
	assert.True(t, state(t, pod, mended).Converged())
}

// If a SidecarSet has a native sidecar, the hash covers the images of ordinary init containers.
// The upgrade writes only the new hash.
func TestSpec9_1_ANewImageOfAnOrdinaryInitContainerWritesOnlyTheHash(t *testing.T) {
	target := nativeTarget("mesh:1")
	target.Sidecars[0].Image = "z:1"
	patch, err := Patch(nativePod(), target, now)
	require.NoError(t, err)
	var written map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(patch, &written))
	assert.NotContains(t, written, "spec")
	pod := apply(t, nativePod(), patch)
	assert.Equal(t, nativePod().Spec, pod.Spec)
	got := state(t, pod, target)
	assert.True(t, got.Updated && got.Converged(), "%+v", got)
}

func TestSpec9_1_AnInitContainerThatEndsIsNeverWritten(t *testing.T) {
	target := nativeTarget("mesh:2")
	target.Sidecars = append(target.Sidecars, podstate.Sidecar{Name: "first", Image: "first:2", Native: true}, podstate.Sidecar{Name: "own", Image: "own:2"})
	patch, err := Patch(nativePod(), target, now)
	require.NoError(t, err)
	assert.Equal(t, []string{"first first:1", "mesh mesh:2", "own mesh:1"}, initImages(apply(t, nativePod(), patch)))
}

func TestSpec2_15_ThePatchRecordsWhyAContainerCouldNotStart(t *testing.T) {
	pod := nativePod()
	pod.Status.InitContainerStatuses[1].State.Waiting = &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError"}
	patch, err := Patch(pod, nativeTarget("mesh:2"), now)
	require.NoError(t, err)
	states, err := record.InPlaceStates(apply(t, pod, patch).Annotations)
	require.NoError(t, err)
	assert.Equal(t, "CreateContainerConfigError", states["s"].LastContainerStatuses["mesh"].StartFailure)
	assert.Empty(t, states["s"].LastContainerStatuses["z"].StartFailure)
}
