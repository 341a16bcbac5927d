package upgrade

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

func hotTarget(image, setVersion string) Target {
	return Target{
		Version: &podstate.Version{Set: "s", Hash: "hash-" + image, HashWithoutImage: "blank", Sidecars: []podstate.Sidecar{
			{Name: "envoy", Image: image, EmptyImage: "empty:1"},
		}},
		Revision: "s-rev", SetVersion: setVersion,
	}
}

func hotPod() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID, pod.ResourceVersion = "p", "d", "uid", "41"
	pod.Annotations = map[string]string{
		v1alpha1.InjectedListAnnotation:               "s",
		v1alpha1.HashAnnotation:                       `{"s":{"hash":"hash-envoy:1"}}`,
		v1alpha1.HashWithoutImageAnnotation:           `{"s":{"hash":"blank"}}`,
		v1alpha1.WorkingHotUpgradeContainerAnnotation: `{"envoy":"envoy-1","other":"other-2"}`,
		v1alpha1.VersionAnnotationPrefix + "envoy-1":  "1", v1alpha1.VersionAltAnnotationPrefix + "envoy-1": "0",
		v1alpha1.VersionAnnotationPrefix + "envoy-2": "0", v1alpha1.VersionAltAnnotationPrefix + "envoy-2": "1",
	}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}, {Name: "envoy-1", Image: "envoy:1"}, {Name: "envoy-2", Image: "empty:1"}}
	run(pod)
	return pod
}

// run simulates a kubelet that starts the containers in the spec.
func run(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "id-of-" + c.Image, Ready: true})
	}
}

func apply(t *testing.T, pod *corev1.Pod, patch []byte) *corev1.Pod {
	t.Helper()
	document, err := json.Marshal(pod)
	require.NoError(t, err)
	patched, err := strategicpatch.StrategicMergePatch(document, patch, corev1.Pod{})
	require.NoError(t, err)
	result := &corev1.Pod{}
	require.NoError(t, json.Unmarshal(patched, result))
	return result
}

func images(pod *corev1.Pod) []string {
	var found []string
	for _, c := range pod.Spec.Containers {
		found = append(found, c.Image)
	}
	return found
}

func state(t *testing.T, pod *corev1.Pod, target Target) *podstate.State {
	t.Helper()
	found, err := target.Of(pod)
	require.NoError(t, err)
	return &found
}

func TestSpec7_7_UpgradeMigrateReset(t *testing.T) {
	target := hotTarget("envoy:2", "77")
	patch, err := Patch(hotPod(), target, now)
	require.NoError(t, err)
	pod := apply(t, hotPod(), patch)

	assert.Equal(t, []string{"app:1", "envoy:1", "envoy:2"}, images(pod))
	assert.JSONEq(t, `{"envoy":"envoy-2","other":"other-2"}`, pod.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation])
	versions := func() []string {
		var all []string
		for _, key := range []string{v1alpha1.VersionAnnotationPrefix + "envoy-1", v1alpha1.VersionAltAnnotationPrefix + "envoy-1", v1alpha1.VersionAnnotationPrefix + "envoy-2", v1alpha1.VersionAltAnnotationPrefix + "envoy-2"} {
			all = append(all, pod.Annotations[key])
		}
		return all
	}
	assert.Equal(t, []string{"1", "77", "77", "1"}, versions())
	asked := state(t, pod, target)
	assert.True(t, asked.Updated && asked.Migrating && !asked.Consistent && !asked.Migrated && !asked.Ready, "%+v", asked)

	run(pod)
	migrated := state(t, pod, target)
	assert.True(t, migrated.Migrated && migrated.UnavailableByUpgrade(), "%+v", migrated)

	hash := pod.Annotations[v1alpha1.HashAnnotation]
	patch, err = Reset(pod, target.Version, now)
	require.NoError(t, err)
	pod = apply(t, pod, patch)
	assert.Equal(t, []string{"app:1", "empty:1", "envoy:2"}, images(pod))
	assert.Equal(t, []string{"0", "77", "77", "0"}, versions())
	assert.Equal(t, hash, pod.Annotations[v1alpha1.HashAnnotation], "a reset advances no hash")
	assert.True(t, state(t, pod, target).UnavailableByUpgrade(), "the emptied twin restarts")
	run(pod)
	settled := state(t, pod, target)
	assert.True(t, settled.Converged() && settled.UpgradedToVersion && !settled.UnavailableByUpgrade(), "%+v", settled)
}

// The kubelet starts an upgraded twin and a native sidecar for the first time, and reports their images with other
// names.
func TestSpec7_7_AResetKeepsTheObservedStartOfAContainer(t *testing.T) {
	target := hotTarget("envoy:2", "77")
	target.Sidecars = append(target.Sidecars, podstate.Sidecar{Name: "proxy", Image: "proxy:2", Native: true})
	pod := hotPod()
	pod.Spec.InitContainers = []corev1.Container{{Name: "proxy", Image: "proxy:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	pod.Status.ContainerStatuses = nil
	patch, err := Patch(pod, target, now)
	require.NoError(t, err)
	pod = apply(t, pod, patch)
	start := func() {
		run(pod)
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(time.Second))}}
		pod.Status.ContainerStatuses[2].Image, pod.Status.ContainerStatuses[2].State = "sha256:1234", running
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", Image: "sha256:5678", ImageID: "id-of-proxy:2", Ready: true, State: running}}
	}
	start()
	require.True(t, state(t, pod, target).Migrated)
	patch, err = Reset(pod, target.Version, metav1.NewTime(now.Add(time.Minute)))
	require.NoError(t, err)
	pod = apply(t, pod, patch)
	assert.True(t, state(t, pod, target).Resetting)
	start()
	found := state(t, pod, target)
	assert.True(t, found.Converged() && !found.Resetting, "%+v", found)
}

func TestSpec7_7_AResetIsInProgressUntilTheTwinIsReadyOrCrashes(t *testing.T) {
	target := hotTarget("envoy:2", "77")
	patch, err := Patch(hotPod(), target, now)
	require.NoError(t, err)
	pod := apply(t, hotPod(), patch)
	run(pod)
	assert.False(t, state(t, pod, target).Resetting, "the twin is not emptied yet")
	patch, err = Reset(pod, target.Version, now)
	require.NoError(t, err)
	pod = apply(t, pod, patch)
	target.Good = []v1alpha1.GoodRevision{{Hash: target.Hash, ResourceVersion: "78"}}
	assert.True(t, state(t, pod, target).Resetting, "although the rollout has ended")
	for _, c := range []struct {
		ready    bool
		restarts int32
		want     bool
	}{{false, 1, true}, {true, 1, false}, {false, 2, false}} {
		run(pod)
		pod.Status.ContainerStatuses[1].Ready, pod.Status.ContainerStatuses[1].RestartCount = c.ready, c.restarts
		assert.Equal(t, c.want, state(t, pod, target).Resetting, "%+v", c)
	}
}

func TestSpec11_6_CrashesOfTheActiveTwinCountAfterTheReset(t *testing.T) {
	target := hotTarget("envoy:2", "77")
	patch, err := Patch(hotPod(), target, now)
	require.NoError(t, err)
	pod := apply(t, hotPod(), patch)
	// restart simulates restarts of a twin.
	restart := func(twin int, count int32) {
		run(pod)
		for i := range pod.Status.ContainerStatuses {
			pod.Status.ContainerStatuses[i].RestartCount = 0
		}
		pod.Status.ContainerStatuses[twin].RestartCount = count
	}
	restart(2, 1)
	patch, err = Reset(pod, target.Version, now)
	require.NoError(t, err)
	pod = apply(t, pod, patch)
	restart(2, 1)
	assert.Zero(t, state(t, pod, target).Crashes, "the restart by the upgrade is no crash")
	assert.True(t, state(t, pod, target).Converged())
	restart(2, 3)
	assert.EqualValues(t, 2, state(t, pod, target).Crashes)
	restart(1, 4)
	assert.EqualValues(t, 3, state(t, pod, target).Crashes, "the emptied twin crashes, too")
}

func TestSpec7_7_NewerVersionOverAFailingOneKeepsTheOldTwin(t *testing.T) {
	patch, err := Patch(hotPod(), hotTarget("envoy:bad", "77"), now)
	require.NoError(t, err)
	pod := apply(t, hotPod(), patch)
	pod.Status.ContainerStatuses[2] = corev1.ContainerStatus{
		Name: "envoy-2", Image: "empty:1", ImageID: "id-of-empty:1",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
	}
	target := hotTarget("envoy:3", "99")
	require.False(t, state(t, pod, target).Waits(), "no fix could reach the pod")
	patch, err = Patch(pod, target, now)
	require.NoError(t, err)
	assert.Equal(t, []string{"app:1", "envoy:1", "envoy:3"}, images(apply(t, pod, patch)))
}

func TestSpec7_7_MigratedPodsWaitForTheirResetBeforeTheNextVersion(t *testing.T) {
	patch, err := Patch(hotPod(), hotTarget("envoy:2", "77"), now)
	require.NoError(t, err)
	pod := apply(t, hotPod(), patch)
	run(pod)
	assert.True(t, state(t, pod, hotTarget("envoy:3", "99")).Waits())
}

func TestSpec7_7_EmptiesAnIdleTwinWithTheTargetImageFirst(t *testing.T) {
	newer, target := hotTarget("envoy:2", "77"), hotTarget("envoy:1", "78")
	patch, err := Patch(hotPod(), newer, now)
	require.NoError(t, err)
	pod := apply(t, hotPod(), patch)
	run(pod)
	// The new sidecar is ready, but breaks the app, so the pod does not migrate.
	pod.Status.ContainerStatuses[0].Ready = false
	pod.Status.Conditions[0].Status = corev1.ConditionFalse

	hash := pod.Annotations[v1alpha1.HashAnnotation]
	patch, err = Empty(pod, target, now)
	require.NoError(t, err)
	require.NotNil(t, patch)
	pod = apply(t, pod, patch)
	assert.Equal(t, []string{"app:1", "empty:1", "envoy:2"}, images(pod))
	assert.Equal(t, "0", pod.Annotations[v1alpha1.VersionAnnotationPrefix+"envoy-1"])
	assert.Equal(t, "0", pod.Annotations[v1alpha1.VersionAltAnnotationPrefix+"envoy-2"])
	assert.Equal(t, hash, pod.Annotations[v1alpha1.HashAnnotation])
	assert.True(t, state(t, pod, target).Waits(), "the pod waits until the kubelet restarts the idle twin")

	pod.Status.ContainerStatuses[1].RestartCount++
	pod.Status.ContainerStatuses[1].Image, pod.Status.ContainerStatuses[1].ImageID = "empty:1", "id-of-empty:1"
	assert.False(t, state(t, pod, target).Waits())
	patch, err = Empty(pod, target, now)
	require.NoError(t, err)
	assert.Nil(t, patch)
	patch, err = Patch(pod, target, now)
	require.NoError(t, err)
	pod = apply(t, pod, patch)
	assert.Equal(t, []string{"app:1", "envoy:1", "envoy:2"}, images(pod))
	assert.Equal(t, `{"envoy":"envoy-1","other":"other-2"}`, pod.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation])
	assert.Equal(t, "78", pod.Annotations[v1alpha1.VersionAnnotationPrefix+"envoy-1"])
}

func TestSpec7_7_EmptiesNoTwinThatAnUpgradeRestarts(t *testing.T) {
	for name, one := range map[string]struct {
		target Target
		change func(*corev1.Pod)
	}{
		"the active twin has the image": {target: hotTarget("envoy:1", "77")},
		"the standby twin is empty":     {target: hotTarget("envoy:2", "77")},
		"the active twin is not ready": {target: hotTarget("envoy:2", "77"), change: func(pod *corev1.Pod) {
			pod.Spec.Containers[2].Image, pod.Status.ContainerStatuses[1].Ready = "envoy:2", false
		}},
		"a cold sidecar":                 {target: target()},
		"the new image is the empty one": {target: hotTarget("empty:1", "77")},
	} {
		t.Run(name, func(t *testing.T) {
			pod := hotPod()
			if one.change != nil {
				one.change(pod)
			}
			patch, err := Empty(pod, one.target, now)
			require.NoError(t, err)
			assert.Nil(t, patch)
		})
	}
}

// A user turns a hot sidecar off without a restart of the pods.
func TestSpec7_7_AnUpgradeToTheEmptyImageEnds(t *testing.T) {
	target := hotTarget("empty:1", "77")
	patch, err := Patch(hotPod(), target, now)
	require.NoError(t, err)
	pod := apply(t, hotPod(), patch)
	run(pod)
	require.True(t, state(t, pod, target).Migrated)
	patch, err = Reset(pod, target.Version, now)
	require.NoError(t, err)
	pod = apply(t, pod, patch)
	run(pod)
	ended := state(t, pod, target)
	assert.True(t, ended.Updated && ended.Converged(), "%+v", ended)
	assert.Equal(t, []string{"app:1", "empty:1", "empty:1"}, images(pod))
}
