//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
	"github.com/outrigger/outrigger/internal/podstate"
)

// sized returns a function that sets memory and CPU of the sidecar, so that a later generation can change the
// amounts.
func sized(policies ...corev1.ContainerResizePolicy) func(*v1alpha1.SidecarSet) {
	return func(set *v1alpha1.SidecarSet) {
		set.Spec.Containers[0].ResizePolicy = policies
		set.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		}
	}
}

// resize changes an amount, waits until the rollout has ended, and asserts that the kubelet reports the
// amount for the sidecars of n pods.
func (s *environment) resize(list string, name corev1.ResourceName, amount string, n int) map[types.UID]corev1.Pod {
	s.t.Helper()
	s.edit(fmt.Sprintf(`[{"op":"replace","path":"/spec/containers/0/resources/%s/%s","value":%q}]`, list, name, amount))
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonRolloutComplete)
	want, found := resource.MustParse(amount), map[types.UID]corev1.Pod{}
	for _, pod := range s.pods() {
		found[pod.UID] = pod
		reported := containers(&pod)[sidecar].Resources
		require.NotNil(s.t, reported, pod.Name)
		amounts := map[string]corev1.ResourceList{"requests": reported.Requests, "limits": reported.Limits}
		assert.Zero(s.t, want.Cmp(amounts[list][name]), "pod %s: %v", pod.Name, reported)
	}
	require.Len(s.t, found, n)
	return found
}

func TestSpec7_9_AResizeRestartsNothing(t *testing.T) {
	s := newEnvironment(t, 1, sized())
	s.deploy(3, v1)
	before := s.pods()
	after := s.resize("limits", corev1.ResourceMemory, "96Mi", 3)
	for _, pod := range before {
		resized := after[pod.UID]
		was, is := containers(&pod), containers(&resized)
		for _, name := range []string{"app", sidecar} {
			assert.Equal(t, was[name].ContainerID, is[name].ContainerID, "%s of %s", name, pod.Name)
			assert.Zero(t, is[name].RestartCount)
		}
	}
	s.within(0)

	t.Log("the node has this much CPU for one pod, not for three; the next generation corrects it")
	var nodes corev1.NodeList
	require.NoError(t, stack.kube.List(s.ctx, &nodes))
	most := nodes.Items[0].Status.Allocatable.Cpu().MilliValue() * 3 / 4
	s.edit(fmt.Sprintf(`[{"op":"replace","path":"/spec/containers/0/resources/requests/cpu","value":"%dm"}]`, most))
	s.poll("the kubelet to defer two resizes", func() (bool, error) {
		deferred := 0
		for _, pod := range s.pods() {
			if c := podstate.Condition(&pod, corev1.PodResizePending); c != nil && c.Reason == corev1.PodReasonDeferred {
				deferred++
			}
		}
		return deferred == 2, nil
	})
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonWaitingForPods)
	s.resize("requests", corev1.ResourceCPU, "20m", 3)
	s.within(0)
}

func TestSpec7_9_AResizePolicyThatRestartsKeepsMaxUnavailable(t *testing.T) {
	s := newEnvironment(t, 1, sized(corev1.ContainerResizePolicy{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}))
	s.deploy(3, v1)
	for _, pod := range s.resize("limits", corev1.ResourceMemory, "96Mi", 3) {
		is := containers(&pod)
		assert.Zero(t, is["app"].RestartCount)
		assert.EqualValues(t, 1, is[sidecar].RestartCount)
	}
	s.within(1)

	t.Log("the kubelet restarts the sidecar once for the amount and once for the image, or once for both")
	s.watched.Expect(v2)
	s.edit(fmt.Sprintf(`[{"op":"replace","path":"/spec/containers/0/resources/limits/memory","value":"128Mi"},{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, v2))
	s.await(observer.Converged(3))
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonRolloutComplete)
	s.within(1)
}
