package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

func podWaiting(name, container, reason string) Pod {
	return Pod{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container, Image: "image:v9"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: container, Image: "image:v8",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		}}},
	}}
}

func upgradedInPlace(pod Pod) Pod {
	pod.UpgradedInPlace = true
	return pod
}

func TestSpec8_SidecarsThatCannotStartAreNamed(t *testing.T) {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
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
		pods []Pod
		want BrokenPods
	}{
		{"none", nil, BrokenPods{}},
		{"on their way", []Pod{podWaiting("a", "cold", "ContainerCreating"), podWaiting("b", "cold", "PodInitializing")}, BrokenPods{}},
		{"not a sidecar", []Pod{podWaiting("a", "app", "CrashLoopBackOff")}, BrokenPods{}},
		{"both reasons about images mean one", []Pod{podWaiting("a", "cold", "ErrImagePull"), podWaiting("b", "cold", "ImagePullBackOff")},
			BrokenPods{Count: 2, Reason: "ImagePullBackOff", Example: "shop/a", Detail: "container cold: ImagePullBackOff, image image:v9"}},
		{"a hot twin", []Pod{podWaiting("a", "hot-2", "CrashLoopBackOff")},
			BrokenPods{Count: 1, Reason: "ContainerCannotStart", Example: "shop/a", Detail: "container hot-2: CrashLoopBackOff, image image:v9"}},
		{"one of two uses a slot", []Pod{podWaiting("a", "cold", "ErrImagePull"), upgradedInPlace(podWaiting("b", "cold", "ErrImagePull"))},
			BrokenPods{Count: 2, UsingSlots: 1, Reason: "ImagePullBackOff", Example: "shop/a", Detail: "container cold: ImagePullBackOff, image image:v9"}},
	} {
		assert.Equal(t, c.want, FindBroken(version, c.pods), c.name)
	}
}
