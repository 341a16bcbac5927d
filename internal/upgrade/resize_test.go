package upgrade

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

func TestSpec7_9_AResizeIsRecordedThenWrittenThenUpgraded(t *testing.T) {
	target := hotTarget("envoy:2", "77")
	target.HashWithoutImage, target.ResizableHashes = "blank-2", []string{"blank", "blank-2"}
	target.Sidecars = append(target.Sidecars, podstate.Sidecar{Name: "mesh", Image: "mesh:1", Native: true, Resources: fixture.Memory("96Mi")})
	target.Sidecars[0].Resources = fixture.Memory("96Mi")
	pod := hotPod()
	pod.Spec.InitContainers = []corev1.Container{{Name: "mesh", Image: "mesh:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: fixture.Memory("64Mi")}}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources = fixture.Memory("64Mi")
	}

	patches, err := Resize(pod, target)
	require.NoError(t, err)
	assert.Nil(t, patches.Resize, "the start is recorded first")
	assert.JSONEq(t, `{"metadata":{"uid":"uid","resourceVersion":"41","annotations":{"outrigger.io/sidecarset-resize":"{\"s\":\"hash-envoy:2\"}"}}}`, string(patches.Begin))
	pod = apply(t, pod, patches.Begin)

	patches, err = Resize(pod, target)
	require.NoError(t, err)
	assert.Nil(t, patches.Begin)
	var written map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(patches.Resize, &written))
	amounts := `"resources":{"limits":{"memory":"96Mi"},"requests":{"memory":"96Mi"}}`
	assert.JSONEq(t, `{"containers":[{"name":"envoy-1",`+amounts+`},{"name":"envoy-2",`+amounts+`}],"initContainers":[{"name":"mesh",`+amounts+`}]}`, string(written["spec"]))
	pod = apply(t, pod, patches.Resize)
	assert.Equal(t, fixture.Memory("64Mi"), pod.Spec.Containers[0].Resources, "the app keeps its resources")

	patches, err = Resize(pod, target)
	require.NoError(t, err)
	require.Equal(t, ResizePatches{}, patches)
	patch, err := Patch(pod, target, now)
	require.NoError(t, err)
	pod = apply(t, pod, patch)
	read, err := record.Read(pod.Annotations)
	require.NoError(t, err)
	assert.Equal(t, "blank-2", read.HashesWithoutImage["s"].Hash)
	assert.True(t, state(t, pod, target).Updated)
}

func TestSpec2_15_TheRecordShowsARestartByAResize(t *testing.T) {
	pod := hotPod()
	pod.Annotations[v1alpha1.ResizeAnnotation] = `{"s":"hash-envoy:2"}`
	pod.Generation, pod.Status.ObservedGeneration = 3, 2
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == "envoy-2" {
			pod.Spec.Containers[i].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
		}
	}
	resizing := func() bool {
		patch, err := Patch(pod, hotTarget("envoy:2", "77"), now)
		require.NoError(t, err)
		states, err := record.InPlaceStates(apply(t, pod, patch).Annotations)
		require.NoError(t, err)
		return states["s"].LastContainerStatuses["envoy-2"].Resizing
	}
	assert.True(t, resizing())
	pod.Status.ObservedGeneration = 3
	assert.False(t, resizing(), "the kubelet has resized the container")
	pod.Status.ObservedGeneration = 2
	delete(pod.Annotations, v1alpha1.ResizeAnnotation)
	assert.False(t, resizing(), "another component has changed the pod")
}

// With an outdated record, the pod would count as a pod with an unfinished resize.
func TestSpec7_9_AnUpgradeAfterAResizeKeepsItsRecordOnlyWhileItIsPending(t *testing.T) {
	for want, pending := range map[string]bool{`{"other":"x"}`: false, `{"other":"x","s":"hash-envoy:2"}`: true} {
		pod := hotPod()
		pod.Annotations[v1alpha1.ResizeAnnotation] = `{"other":"x","s":"hash-envoy:1"}`
		if pending {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue})
		}
		target := hotTarget("envoy:2", "77")
		patch, err := Patch(pod, target, now)
		require.NoError(t, err)
		pod = apply(t, pod, patch)
		assert.JSONEq(t, want, pod.Annotations[v1alpha1.ResizeAnnotation])
		assert.True(t, state(t, pod, target).Updated)
	}
}

// An undo or a rollback restores the content of a pod after a resize to other content has begun.
func TestSpec7_9_AnUndoResizesBackBeforeThePodCountsAsUpdated(t *testing.T) {
	target := hotTarget("envoy:1", "77")
	target.HashWithoutImage, target.ResizableHashes = "blank", []string{"blank", "blank-2"}
	target.Sidecars[0].Resources = fixture.Memory("64Mi")
	pod := hotPod()
	pod.Annotations[v1alpha1.ResizeAnnotation] = `{"s":"hash-envoy:2"}`
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources = fixture.Memory("96Mi")
	}
	require.False(t, state(t, pod, target).Updated)

	patches, err := Resize(pod, target)
	require.NoError(t, err)
	require.Nil(t, patches.Begin, "the record of the other content shows that the resize is not finished")
	pod = apply(t, pod, patches.Resize)
	assert.Equal(t, fixture.Memory("64Mi"), pod.Spec.Containers[1].Resources)
	require.False(t, state(t, pod, target).Updated)

	patch, err := Patch(pod, target, now)
	require.NoError(t, err)
	pod = apply(t, pod, patch)
	assert.True(t, state(t, pod, target).Updated)
	assert.NotContains(t, pod.Annotations[v1alpha1.ResizeAnnotation], "envoy")
}

// Another component began the resize after the end of the rollout.
func TestSpec7_9_AnUpgradeDoesNotWaitForAResizeOfAnotherComponent(t *testing.T) {
	pod := hotPod()
	pod.Annotations[v1alpha1.ResizeAnnotation] = `{"s":"hash-envoy:1"}`
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue})
	target := hotTarget("envoy:2", "77")
	target.Good = []v1alpha1.GoodRevision{{Revision: "r", Hash: "hash-envoy:1", ResourceVersion: "70"}}
	patch, err := Patch(pod, target, now)
	require.NoError(t, err)
	assert.False(t, state(t, apply(t, pod, patch), target).Resizing)
}

// Another component has resized the pod, so the memory of its sidecar differs from the SidecarSet.
func TestSpec7_9_AnUpgradeOfTheImageKeepsTheAmountsOfThePod(t *testing.T) {
	target := hotTarget("envoy:2", "77")
	target.Sidecars[0].Resources = fixture.Memory("96Mi")
	pod := hotPod()
	pod.Spec.Containers[1].Resources = fixture.Memory("64Mi")
	patches, err := Resize(pod, target)
	require.NoError(t, err)
	assert.Equal(t, ResizePatches{}, patches)
}

// The pod is not ready after the restart by the resize, so only the first write can record whether the pod
// was ready before the resize.
func TestSpec7_9_TheBeginOfAResizeRecordsAPodThatIsNotReady(t *testing.T) {
	target := hotTarget("envoy:1", "77")
	target.Hash, target.HashWithoutImage, target.ResizableHashes = "new", "blank-2", []string{"blank", "blank-2"}
	target.Sidecars[0].Resources = fixture.Memory("96Mi")
	pod := hotPod()
	pod.Spec.Containers[1].Resources = fixture.Memory("64Mi")
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	patches, err := Resize(pod, target)
	require.NoError(t, err)
	assert.Contains(t, apply(t, pod, patches.Begin).Annotations, v1alpha1.UnavailableSinceAnnotation)
}
