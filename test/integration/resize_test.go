package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
	"github.com/outrigger/outrigger/internal/record"
)

// sized returns a function that sets resources of the sidecar and maxUnavailable, so that a later generation
// can change the amounts.
func sized(limit int32) func(*v1alpha1.SidecarSet) {
	return func(set *v1alpha1.SidecarSet) {
		maxUnavailable(limit)(set)
		set.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		}
	}
}

func limitMemory(amount string) string {
	return fmt.Sprintf(`{"op":"replace","path":"/spec/containers/0/resources/limits/memory","value":%q}`, amount)
}

// withMemory returns the number of pods whose sidecar has amount as memory limit and as memory request. The
// API server derives the request from the limit in new pods.
func (s *scenario) withMemory(amount string) (n int) {
	s.t.Helper()
	want := resource.MustParse(amount)
	for _, pod := range s.pods() {
		for _, c := range pod.Spec.Containers {
			if c.Name == "side" && c.Resources.Limits.Memory().Cmp(want) == 0 && c.Resources.Requests.Memory().Cmp(want) == 0 {
				n++
			}
		}
	}
	return n
}

func TestSpec7_9_AmountsChangeInPlace(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 4, sized(1))
	s.edit("[" + limitMemory("96Mi") + "]")
	s.awaitPhase(protocol.PhaseComplete)
	set := s.awaitSet("all pods to be updated and ready", counts(4))
	assert.Equal(t, 4, s.withMemory("96Mi"))
	assert.Zero(t, s.await(observer.Converged(4)).SidecarRestarts, "no container restarts")
	for _, pod := range s.pods() {
		read, err := record.Read(pod.Annotations)
		require.NoError(t, err)
		assert.Equal(t, set.Annotations[v1alpha1.HashWithoutImageAnnotation], read.HashesWithoutImage[s.name].Hash)
	}

	t.Log("an image and an amount change together, and the amount changes back")
	s.watched.Expect("side:v2")
	s.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"},` + limitMemory("64Mi") + "]")
	s.awaitPhase(protocol.PhaseComplete)
	s.awaitSet("all pods to be updated and ready", counts(4))
	assert.Equal(t, 4, s.withMemory("64Mi"))
	assert.Equal(t, int32(4), s.await(observer.Converged(4)).SidecarRestarts, "each restarts once")
	s.within(1)
}

// No node accepts the pod, so the kubelet of the pod is not known.
func TestSpec7_9_APodWithoutANodeIsResized(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 1, sized(1))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "unscheduled", Labels: map[string]string{"app": s.name}}}
	pod.Spec.NodeSelector = map[string]string{"disk": "none"}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:v1"}}
	require.NoError(t, stack.kube.Create(s.ctx, pod))
	s.edit("[" + limitMemory("96Mi") + "]")
	s.poll("both pods to be resized", func() (bool, error) { return s.withMemory("96Mi") == 2, nil })
	s.awaitSet("the pod without a node to be updated", func(set *v1alpha1.SidecarSet) bool { return set.Status.UpdatedPods == 2 })
}

func TestSpec7_9_ADeferredResizeIsAWaitThatDelaysNoNewerGeneration(t *testing.T) {
	t.Parallel()
	const reason = "kwok.outrigger.io/resize"
	s := newKubeletScenario(t, 3, map[string]string{reason: "Deferred"}, sized(1))
	s.edit("[" + limitMemory("96Mi") + "]")
	waiting := func(status protocol.RolloutStatus) bool {
		return status.Generation == s.set.Generation && status.Phase == protocol.PhaseWaiting && status.Counts.Converging == 3
	}
	status := s.awaitStatus("the run to wait for three pods", waiting)
	assert.Equal(t, 3, status.Counts.Updated)
	assert.Zero(t, status.Counts.Unavailable, "the resize restarts nothing")

	s.edit("[" + limitMemory("72Mi") + "]")
	s.awaitStatus("the run to wait for three pods", waiting)
	assert.Equal(t, 3, s.withMemory("72Mi"))

	for _, pod := range s.pods() {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, reason))
		require.NoError(t, stack.kube.Patch(s.ctx, &pod, patch))
	}
	s.awaitPhase(protocol.PhaseComplete)
	s.awaitSet("all pods to be updated and ready", counts(3))
}
