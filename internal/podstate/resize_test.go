package podstate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

// resizeVersion returns a version that differs from the content of resizePod in the amount of memory.
func resizeVersion() *Version {
	return &Version{
		Set: "s", Hash: "new", HashWithoutImage: "blank-new", ResizableHashes: []string{"blank-new", "blank-old"},
		Sidecars: []Sidecar{{Name: "side", Image: "side:v1", Resources: fixture.Memory("96Mi")}},
	}
}

func resizePod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Generation = 3
	pod.Annotations = map[string]string{
		v1alpha1.InjectedListAnnotation:     "s",
		v1alpha1.HashAnnotation:             `{"s":{"hash":"old"}}`,
		v1alpha1.HashWithoutImageAnnotation: `{"s":{"hash":"blank-old"}}`,
	}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}, {Name: "side", Image: "side:v1", Resources: fixture.Memory("64Mi")}}
	pod.Status.Phase, pod.Status.ObservedGeneration, pod.Status.QOSClass = corev1.PodRunning, 3, corev1.PodQOSBurstable
	pod.Status.StartTime = new(metav1.NewTime(time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "id-" + c.Image, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, Resources: &corev1.ResourceRequirements{},
		})
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[key] = value }
}

func restartContainer(pod *corev1.Pod) {
	pod.Spec.Containers[1].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
}

func resizeState(t *testing.T, pod *corev1.Pod) State {
	t.Helper()
	state, err := resizeVersion().Of(pod)
	require.NoError(t, err)
	return state
}

func TestSpec7_9_AResizeThatRestartsNothingNeedsNoSlot(t *testing.T) {
	state := resizeState(t, resizePod())
	assert.True(t, state.Upgradable && state.Ready && !state.NeedsSlot() && !state.UnavailableByUpgrade(), "%+v", state)

	for name, change := range map[string]func(*corev1.Pod){
		"another image": func(pod *corev1.Pod) { pod.Spec.Containers[1].Image = "side:v0" },
		"resizePolicy":  restartContainer,
	} {
		state := resizeState(t, resizePod(change))
		assert.True(t, state.Upgradable && state.NeedsSlot(), "%s: %+v", name, state)
	}
}

func TestSpec7_9_PodsThatTheAPIServerDoesNotResizeAreNotUpgradable(t *testing.T) {
	for want, change := range map[string]func(*corev1.Pod){
		"the QoS class of the pod would change from Guaranteed to Burstable": func(pod *corev1.Pod) {
			one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("64Mi")}
			pod.Spec.Containers = pod.Spec.Containers[1:]
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one.DeepCopy()}
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("64Mi")
			pod.Status.QOSClass = corev1.PodQOSGuaranteed
		},
		"the kubelet of the pod does not report which resize it has observed (Kubernetes 1.34 and newer)": func(pod *corev1.Pod) { pod.Status.ObservedGeneration = 0 },
		"the kubelet of the pod does not resize containers":                                               func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].Resources = nil },
		"Kubernetes does not resize pods of Windows":                                                      func(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} },
		"the pod has resources of its own in spec.resources":                                              func(pod *corev1.Pod) { pod.Spec.Resources = new(fixture.Memory("1Gi")) },
	} {
		pod, version := resizePod(change), resizeVersion()
		if pod.Status.QOSClass == corev1.PodQOSGuaranteed {
			version.Sidecars[0].Resources = corev1.ResourceRequirements{Limits: fixture.Memory("96Mi").Limits}
		}
		assert.Equal(t, want, version.ResizeObstacle(pod))
		state, err := version.Of(pod)
		require.NoError(t, err)
		assert.False(t, state.Upgradable, want)
	}
	assert.Empty(t, resizeVersion().ResizeObstacle(resizePod()))
	assert.Empty(t, resizeVersion().ResizeObstacle(resizePod(func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{Phase: corev1.PodPending} })), "no kubelet has accepted the pod")
}

// The worker stopped after it had begun a resize to other content. The SidecarSet then returned to the content of
// the pod.
func TestSpec7_9_APodWithAnUnfinishedResizeIsNotUpdated(t *testing.T) {
	begun := annotated(v1alpha1.ResizeAnnotation, `{"s":"other"}`)
	pod := resizePod(begun, annotated(v1alpha1.HashAnnotation, `{"s":{"hash":"new"}}`), annotated(v1alpha1.HashWithoutImageAnnotation, `{"s":{"hash":"blank-new"}}`))
	state := resizeState(t, pod)
	assert.True(t, !state.Updated && state.Upgradable && !state.NeedsSlot(), "%+v", state)

	restartContainer(pod)
	state = resizeState(t, pod)
	assert.True(t, !state.UnavailableByUpgrade() && state.NeedsSlot(), "nothing restarts before the resize: %+v", state)
}

// The rollout of the old content has ended, so only the resize can be the cause of the unavailability.
func TestSpec7_9_APodThatAResizeRestartsCountsBeforeItsUpgradeIsWritten(t *testing.T) {
	version := resizeVersion()
	version.Good = []v1alpha1.GoodRevision{{Revision: "r", Hash: "old", ResourceVersion: "5"}}
	state := func(changes ...func(*corev1.Pod)) State {
		found, err := version.Of(resizePod(append([]func(*corev1.Pod){restartContainer, annotated(v1alpha1.ResizeAnnotation, `{"s":"new"}`)}, changes...)...))
		require.NoError(t, err)
		return found
	}
	unready := func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

	begun := state()
	assert.True(t, begun.NeedsSlot() && !begun.UnavailableByUpgrade(), "%+v", begun)
	sent := state(func(pod *corev1.Pod) { pod.Generation = 4 })
	assert.True(t, !sent.NeedsSlot() && sent.UnavailableByUpgrade(), "%+v", sent)
	restarted := state(unready)
	assert.True(t, !restarted.NeedsSlot() && restarted.UnavailableByUpgrade(), "%+v", restarted)
	before := state(unready, annotated(v1alpha1.UnavailableSinceAnnotation, `{"s":null}`))
	assert.True(t, !before.NeedsSlot() && !before.UnavailableByUpgrade(), "the pod was not ready before: %+v", before)
}

func TestSpec7_9_AResizeAfterTheEndOfTheRolloutIsNoUpgrade(t *testing.T) {
	version := resizeVersion()
	version.Good = []v1alpha1.GoodRevision{{Revision: "r", Hash: "new", ResourceVersion: "5"}}
	state, err := version.Of(resizePod(restartContainer, annotated(v1alpha1.ResizeAnnotation, `{"s":"new"}`), annotated(v1alpha1.HashAnnotation, `{"s":{"hash":"new"}}`),
		annotated(v1alpha1.HashWithoutImageAnnotation, `{"s":{"hash":"blank-new"}}`), func(pod *corev1.Pod) { pod.Generation = 4 }))
	require.NoError(t, err)
	assert.True(t, state.Updated && state.Converged() && !state.UnavailableByUpgrade(), "%+v", state)
}

// A VPA has changed the amounts, and the kubelet is too old for a resize.
func TestSpec7_9_AnImageIsUpgradedAlthoughTheAmountsDiffer(t *testing.T) {
	state := resizeState(t, resizePod(annotated(v1alpha1.HashWithoutImageAnnotation, `{"s":{"hash":"blank-new"}}`),
		func(pod *corev1.Pod) { pod.Status.ObservedGeneration = 0 }))
	assert.True(t, state.Upgradable && state.NeedsSlot(), "%+v", state)
}

func TestSpec7_9_AnyResizePolicyThatRestartsTakesASlot(t *testing.T) {
	state := resizeState(t, resizePod(restartContainer, func(pod *corev1.Pod) { pod.Spec.Containers[1].ResizePolicy[0].ResourceName = corev1.ResourceCPU }))
	assert.True(t, state.Upgradable && state.NeedsSlot(), "%+v", state)
}

func TestSpec7_9_AResizedPodConvergesOnceTheKubeletHasResizedIt(t *testing.T) {
	resized := []func(*corev1.Pod){
		annotated(v1alpha1.ResizeAnnotation, `{"s":"new"}`), annotated(v1alpha1.HashAnnotation, `{"s":{"hash":"new"}}`),
		annotated(v1alpha1.HashWithoutImageAnnotation, `{"s":{"hash":"blank-new"}}`),
		func(pod *corev1.Pod) { pod.Spec.Containers[1].Resources = fixture.Memory("96Mi") },
	}
	state := resizeState(t, resizePod(resized...))
	assert.True(t, state.Updated && state.Converged(), "%+v", state)
	for want, change := range map[string]func(*corev1.Pod){
		"the kubelet has not observed the resize": func(pod *corev1.Pod) { pod.Generation = 4 },
		"PodResizePending: Deferred": func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred})
		},
		"PodResizeInProgress": func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue})
		},
	} {
		pod := resizePod(append(resized, change)...)
		assert.Equal(t, want, resizeVersion().ResizeWait(pod))
		state := resizeState(t, pod)
		assert.True(t, state.Updated && !state.Converged() && !state.UnavailableByUpgrade() && !state.Waits(), "%s: %+v", want, state)
		restartContainer(pod)
		state = resizeState(t, pod)
		assert.True(t, state.UnavailableByUpgrade(), "%s: the container will restart", want)
	}
}

func TestSpec2_15_OnlyAChangedAmountWithTheResizePolicyRestartsAContainer(t *testing.T) {
	amounts := func(memory, cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	reported := func(memory, cpu string) *corev1.ContainerStatus {
		return &corev1.ContainerStatus{Resources: new(amounts(memory, cpu))}
	}
	side := &corev1.Container{Resources: amounts("96Mi", "100m"), ResizePolicy: []corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}, {ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
	}}
	assert.True(t, ResizeRestarts(side, reported("64Mi", "100m")))
	assert.False(t, ResizeRestarts(side, reported("96Mi", "50m")))
	assert.True(t, ResizeRestarts(side, &corev1.ContainerStatus{}), "the kubelet does not report the amounts")
	side.ResizePolicy = nil
	assert.False(t, ResizeRestarts(side, reported("64Mi", "50m")))
}
