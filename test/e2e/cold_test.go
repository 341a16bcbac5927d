//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

func TestSpec7_6_OnlyTheSidecarRestarts(t *testing.T) {
	onlyTheSidecarRestarts(t, newEnvironment(t, 1, nil))
}

// onlyTheSidecarRestarts upgrades three pods, and asserts that only the sidecars have restarted.
func onlyTheSidecarRestarts(t *testing.T, s *environment) {
	t.Helper()
	s.deploy(3, v1)
	before := map[types.UID]corev1.Pod{}
	for _, pod := range s.pods() {
		before[pod.UID] = pod
	}
	s.upgradeTo(v2)
	s.await(observer.Converged(3))
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonRolloutComplete)
	s.within(1)
	for _, pod := range s.pods() {
		old, ok := before[pod.UID]
		require.True(t, ok, "pod %s is another one", pod.Name)
		was, is := containers(&old), containers(&pod)
		assert.Equal(t, was["app"].ContainerID, is["app"].ContainerID)
		assert.Zero(t, is["app"].RestartCount)
		assert.NotEqual(t, was[sidecar].ContainerID, is[sidecar].ContainerID)
		assert.NotEqual(t, was[sidecar].ImageID, is[sidecar].ImageID)
		assert.EqualValues(t, 1, is[sidecar].RestartCount)
	}
}

func TestSpec7_8_AMissingImageKeepsItsSlotsUntilItIsCorrected(t *testing.T) {
	s := newEnvironment(t, 2, nil)
	s.deploy(4, v1)
	s.upgradeTo(absent)
	s.await(func(v observer.View) bool { return v.InFlight == 2 && v.Ready == 2 })
	s.awaitReason(v1alpha1.ConditionDegraded, "ImagePullBackOff")
	require.Equal(t, 2, s.watched.View().Updated, "maxUnavailable is two")
	s.upgradeTo(v2)
	s.await(observer.Converged(4))
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonRolloutComplete)
	require.Equal(t, 2, s.watched.Asked(absent))
	s.within(2)
}

func TestSpec7_1_APauseDuringABatchStopsTheOtherPods(t *testing.T) {
	s := newEnvironment(t, 1, nil)
	s.deploy(4, v1)
	s.upgradeTo(v2)
	s.await(func(v observer.View) bool { return v.Updated == 1 })
	s.edit(`[{"op":"add","path":"/spec/updateStrategy/paused","value":true}]`)
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonPaused)
	s.await(func(v observer.View) bool { return v.InFlight == 0 && v.Ready == 4 })
	paused := s.watched.Asked(v2)
	require.Less(t, paused, 4, "nothing was left to pause")
	s.edit(`[{"op":"remove","path":"/spec/updateStrategy/paused"}]`)
	s.await(observer.Converged(4))
	s.within(1)
}
