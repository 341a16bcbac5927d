package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

func podWaiting(name, container, reason string) rollout.Pod {
	return rollout.Pod{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container, Image: "image:v9"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: container, Image: "image:v8",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		}}},
	}}
}

func upgraded(pod rollout.Pod) rollout.Pod {
	pod.UpgradedInPlace = true
	return pod
}

func TestSpec8_SidecarsThatCannotStartAreNamed(t *testing.T) {
	set := setAt(0)
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "h", v1alpha1.HashWithoutImageAnnotation: "w"}
	set.Spec.Containers = []v1alpha1.SidecarContainer{
		{Container: corev1.Container{Name: "cold"}},
		{Container: corev1.Container{Name: "hot"}, UpgradeStrategy: v1alpha1.SidecarContainerUpgradeStrategy{
			UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "empty"}},
	}
	version, err := podstate.NewVersion(set)
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		pods []rollout.Pod
		want brokenPods
	}{
		{"none", nil, brokenPods{}},
		{"on their way", []rollout.Pod{podWaiting("a", "cold", "ContainerCreating"), podWaiting("b", "cold", "PodInitializing")}, brokenPods{}},
		{"not a sidecar", []rollout.Pod{podWaiting("a", "app", "CrashLoopBackOff")}, brokenPods{}},
		{"both reasons about images mean one", []rollout.Pod{podWaiting("a", "cold", "ErrImagePull"), podWaiting("b", "cold", "ImagePullBackOff")},
			brokenPods{count: 2, reason: "ImagePullBackOff", example: "shop/a", detail: "container cold: ImagePullBackOff, image image:v9"}},
		{"a hot twin", []rollout.Pod{podWaiting("a", "hot-2", "CrashLoopBackOff")},
			brokenPods{count: 1, reason: "ContainerCannotStart", example: "shop/a", detail: "container hot-2: CrashLoopBackOff, image image:v9"}},
		{"one of two uses a slot", []rollout.Pod{podWaiting("a", "cold", "ErrImagePull"), upgraded(podWaiting("b", "cold", "ErrImagePull"))},
			brokenPods{count: 2, usingSlots: 1, reason: "ImagePullBackOff", example: "shop/a", detail: "container cold: ImagePullBackOff, image image:v9"}},
	} {
		assert.Equal(t, c.want, findBroken(version, c.pods), c.name)
	}
}
