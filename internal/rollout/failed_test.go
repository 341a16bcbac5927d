package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// failing returns pods whose sidecar cannot start.
func failing(state podstate.State, n int) (pods []Pod) {
	for range n {
		pod := newPod("pod", state)
		pod.Pod.Spec.Containers = []corev1.Container{{Name: "side", Image: "side:v2"}}
		pod.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "side", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		}}
		pods = append(pods, pod)
	}
	return pods
}

// notObserved returns the pods with the record of an upgrade that the kubelet has not observed.
func notObserved(pods []Pod) []Pod {
	for i := range pods {
		pods[i].Annotations = map[string]string{v1alpha1.InPlaceUpdateStateAnnotation: `{"s":{"lastContainerStatuses":{"side":{"imageID":"id-1","restartCount":7}}}}`}
		pods[i].Status.ContainerStatuses[0].ImageID, pods[i].Status.ContainerStatuses[0].RestartCount = "id-1", 7
	}
	return pods
}

// failedBefore returns the pods with an upgrade that the kubelet has not observed, and with a container that
// failed for the same reason before the upgrade.
func failedBefore(pods []Pod) []Pod {
	for i := range pods {
		status := &pods[i].Status.ContainerStatuses[0]
		status.State.Waiting.Reason = "CreateContainerConfigError"
		pods[i].Annotations = map[string]string{v1alpha1.InPlaceUpdateStateAnnotation: `{"s":{"lastContainerStatuses":{"side":{"imageID":"","restartCount":0,"startFailure":"CreateContainerConfigError"}}}}`}
		status.ImageID, status.RestartCount = "", 0
	}
	return pods
}

func serving(state podstate.State, n int) (pods []Pod) {
	for range n {
		pods = append(pods, newPod("pod", state))
	}
	return pods
}

func TestSpec11_6_FailedPods(t *testing.T) {
	crashed, once := updated, updated
	crashed.Crashes, once.Crashes = 2, 1
	created := updated
	created.UpgradedInPlace, created.UpgradedToVersion = false, false
	oldCrashed, fixed := old, old
	oldCrashed.Crashes, fixed.Upgradable = 7, false
	lost, waits := old, old
	lost.NodeLost, waits.Consistent = true, false
	ended, endedCrashed := restart, crashed
	ended.RolloutEnded, endedCrashed.RolloutEnded = true, true
	set := unavailable(intstr.FromInt32(1))
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v2"}}}
	version, err := podstate.NewVersion(set)
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		pods   [][]Pod
		failed int
	}{
		{"none", [][]Pod{serving(updated, 3), serving(old, 3)}, 0},
		{"cannot start", [][]Pod{failing(restart, 2), serving(old, 8)}, 2},
		{"restarted twice since the upgrade", [][]Pod{serving(crashed, 1), serving(once, 1), serving(old, 8)}, 1},
		{"pods that were created with the version have no upgrade to compare with", [][]Pod{failing(created, 2), serving(old, 8)}, 0},
		{"pods of an ended rollout were available before they failed", [][]Pod{failing(ended, 2), serving(endedCrashed, 2), serving(old, 8)}, 0},
		{"the crash loop of the former content", [][]Pod{notObserved(failing(restart, 2)), serving(old, 8)}, 0},
		{"the content before the upgrade failed for the same reason", [][]Pod{failedBefore(failing(restart, 2)), serving(old, 8)}, 0},
		{"a failing control group", [][]Pod{failing(restart, 2), failing(old, 8)}, 0},
		{"the last pod of the older version is on a lost node", [][]Pod{failing(restart, 9), failing(lost, 1)}, 8},
		{"the last pod of the older version waits for an earlier upgrade", [][]Pod{failing(restart, 9), failing(waits, 1)}, 8},
		{"an outage late in a rollout", [][]Pod{failing(restart, 9), failing(old, 1)}, 0},
		{"half of the control group fails", [][]Pod{failing(restart, 4), failing(old, 2), serving(old, 2)}, 2},
		{"a share of the control group is rounded up", [][]Pod{failing(restart, 2), failing(old, 1), serving(old, 9)}, 1},
		{"pods of the control group that restarted long ago can start", [][]Pod{failing(restart, 2), serving(oldCrashed, 8)}, 2},
		{"pods that are not upgradable are no control group", [][]Pod{failing(restart, 2), failing(fixed, 8), serving(old, 8)}, 2},
		{"no control group is left", [][]Pod{failing(restart, 2), serving(updated, 8)}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []Pod
			for _, pods := range c.pods {
				all = append(all, pods...)
			}
			assert.Equal(t, c.failed, FindFailed(version, all, &protocol.Step{}).Count)
		})
	}
}

func TestSpec11_6_FailedPodsAboveTheLimitStopTheRollout(t *testing.T) {
	set := unavailable(intstr.FromInt32(9))
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v2"}}}
	pods := append(failing(restart, 3), serving(old, 97)...)
	for _, c := range []struct {
		name      string
		limit     *intstr.IntOrString
		tolerated int
		reason    string
	}{
		{"no limit", nil, 0, ""},
		{"within the limit", ptr(intstr.FromInt32(3)), 0, ""},
		{"above the limit", ptr(intstr.FromInt32(2)), 0, "3 pods failed after the upgrade, and 2 are allowed, such as d/pod (container side: CrashLoopBackOff, image side:v2)"},
		{"a percentage", ptr(intstr.FromString("2%")), 0, "3 pods failed after the upgrade, and 2 are allowed, such as d/pod (container side: CrashLoopBackOff, image side:v2)"},
		{"a resume accepted the failed pods", ptr(intstr.FromInt32(0)), 3, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage := &protocol.Stage{Policy: "p", Steps: 1, Tolerated: c.tolerated, Step: &protocol.Step{UpTo: intstr.FromString("100%"), MaxFailed: c.limit}}
			plan, err := NextInStage(set, pods, nil, stage)
			require.NoError(t, err)
			failure, err := Failure(set, pods, &plan, stage)
			require.NoError(t, err)
			if c.reason == "" {
				require.Nil(t, failure)
				return
			}
			assert.Equal(t, &protocol.Failure{Pods: 3, Reason: c.reason}, failure)
		})
	}
	done := &protocol.Stage{Policy: "p", Done: true, Step: &protocol.Step{MaxFailed: ptr(intstr.FromInt32(0))}}
	failure, err := Failure(set, pods, &Plan{}, done)
	require.NoError(t, err)
	assert.Nil(t, failure, "after promote --full, no limit is left")
}

// A pause would remain until a resume, and would also stop upgrades that become necessary later.
func TestSpec11_6_FailedPodsPauseNoRolloutThatUpgradesNoPods(t *testing.T) {
	stage := &protocol.Stage{Policy: "p", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("100%"), MaxFailed: ptr(intstr.FromInt32(0))}}
	crashed := updated
	crashed.Crashes = MaxCrashes
	for _, c := range []struct {
		phase  protocol.Phase
		change func(*v1alpha1.SidecarSetUpdateStrategy)
		pods   []Pod
		fails  bool
	}{
		{protocol.PhaseNotUpdate, func(s *v1alpha1.SidecarSetUpdateStrategy) { s.Type = v1alpha1.NotUpdateSidecarSetStrategyType }, serving(old, 1), false},
		{protocol.PhasePaused, func(s *v1alpha1.SidecarSetUpdateStrategy) { s.Paused = true }, serving(old, 1), false},
		{protocol.PhaseWaiting, func(s *v1alpha1.SidecarSetUpdateStrategy) { s.Paused = true }, serving(restart, 1), false},
		{protocol.PhasePartitionReached, func(s *v1alpha1.SidecarSetUpdateStrategy) { s.Partition = ptr(intstr.FromInt32(1)) }, serving(old, 1), false},
		{protocol.PhaseComplete, func(*v1alpha1.SidecarSetUpdateStrategy) {}, nil, false},
		{protocol.PhaseProgressing, func(*v1alpha1.SidecarSetUpdateStrategy) {}, serving(old, 1), true},
		{protocol.PhaseWaiting, func(*v1alpha1.SidecarSetUpdateStrategy) {}, serving(restart, 1), true},
	} {
		t.Run(string(c.phase), func(t *testing.T) {
			set := unavailable(intstr.FromInt32(9))
			set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v2"}}}
			c.change(&set.Spec.UpdateStrategy)
			pods := append(serving(crashed, 1), c.pods...)
			plan, err := NextInStage(set, pods, nil, stage)
			require.NoError(t, err)
			require.Equal(t, c.phase, plan.Phase)
			failure, err := Failure(set, pods, &plan, stage)
			require.NoError(t, err)
			assert.Equal(t, c.fails, failure != nil)
		})
	}
}
