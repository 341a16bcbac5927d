package podstate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

var patched = time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)

func version() *Version {
	return &Version{Set: "s", Hash: "new", HashWithoutImage: "blank", Sidecars: []Sidecar{{Name: "side", Image: "side:v2"}}}
}

// upgraded is a pod whose container side was patched from v1 to v2, at patched.
func upgraded(change func(*corev1.Pod, *corev1.ContainerStatus)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			v1alpha1.InjectedListAnnotation:       "s",
			v1alpha1.HashAnnotation:               `{"s":{"hash":"new"}}`,
			v1alpha1.HashWithoutImageAnnotation:   `{"s":{"hash":"blank"}}`,
			v1alpha1.InPlaceUpdateStateAnnotation: `{"s":{"revision":"new","updateTimestamp":"2024-01-02T12:00:00Z","lastContainerStatuses":{"side":{"imageID":"id-1"}}}}`,
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}, {Name: "side", Image: "side:v2"}}},
		Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(patched.Add(-time.Hour))}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app"}, {Name: "side", Image: "side:v1", ImageID: "id-1", RestartCount: 4}},
		},
	}
	change(pod, &pod.Status.ContainerStatuses[1])
	return pod
}

func TestSpec7_Consistent(t *testing.T) {
	state := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"s":{"revision":"new","updateTimestamp":"2024-01-02T12:00:00Z","lastContainerStatuses":{"side":` + value + `}}}`
		}
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod, *corev1.ContainerStatus)
		want   bool
	}{
		{"untouched status", func(*corev1.Pod, *corev1.ContainerStatus) {}, false},
		{"no status", func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Status.ContainerStatuses = nil }, false},
		{"imageID changed", func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.ImageID = "id-2" }, true},
		{"imageID lost", func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.ImageID = "" }, false},
		{"status image equals spec image", func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.Image = "side:v2" }, true},
		{"digests equal", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Spec.Containers[1].Image, s.ImageID = "side@sha256:aa", "docker.io/side@sha256:aa"
			state(`{"imageID":"docker.io/side@sha256:aa"}`)(p)
		}, true},
		{"digests differ", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Spec.Containers[1].Image, s.ImageID = "side@sha256:bb", "docker.io/side@sha256:aa"
			state(`{"imageID":"docker.io/side@sha256:aa"}`)(p)
		}, false},
		{"restarted since", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			state(`{"imageID":"id-1","restartCount":3}`)(p)
		}, true},
		{"restarted only before", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			state(`{"imageID":"id-1","restartCount":4}`)(p)
		}, false},
		{"started since, older record", func(_ *corev1.Pod, s *corev1.ContainerStatus) {
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(patched.Add(time.Second))}
		}, true},
		{"started before, older record", func(_ *corev1.Pod, s *corev1.ContainerStatus) {
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(patched.Add(-time.Second))}
		}, false},
		{"never upgraded", func(p *corev1.Pod, _ *corev1.ContainerStatus) {
			delete(p.Annotations, v1alpha1.InPlaceUpdateStateAnnotation)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := version().Of(upgraded(c.change))
			require.NoError(t, err)
			assert.Equal(t, c.want, got.Consistent)
			assert.True(t, got.Updated)
			assert.True(t, got.Upgradable)
			assert.True(t, got.Complete)
			assert.Equal(t, !c.want, got.InFlight())
		})
	}
}

func TestFailedUpgradesAreTold(t *testing.T) {
	for reason, failed := range map[string]bool{"ImagePullBackOff": true, "CrashLoopBackOff": true, "ContainerCreating": false} {
		got, err := version().Of(upgraded(func(_ *corev1.Pod, s *corev1.ContainerStatus) {
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
		}))
		require.NoError(t, err)
		assert.Equal(t, failed, got.Failed, reason)
	}
}

func TestUnreadyBeforeItsUpgrade(t *testing.T) {
	for at, want := range map[time.Time]bool{patched.Add(-time.Minute): true, patched: false, patched.Add(time.Minute): false} {
		got, err := version().Of(upgraded(func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(at)
			s.ImageID = "id-2"
		}))
		require.NoError(t, err)
		assert.Equal(t, want, got.UnreadyBefore)
		assert.Equal(t, !want, got.InFlight())
	}
}

func TestSpec3_CompletePodsHoldEverySidecar(t *testing.T) {
	hot := &Version{Set: "s", Sidecars: []Sidecar{{Name: "envoy", EmptyImage: "empty:1"}, {Name: "nat", Native: true}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.WorkingHotUpgradeContainerAnnotation: `{"envoy":"envoy-2"}`}}}
	pod.Spec.Containers = []corev1.Container{{Name: "envoy-1", Image: "empty:1"}, {Name: "envoy-2", Image: "envoy:1"}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "nat"}}
	complete := func() bool {
		state, err := hot.Of(pod)
		require.NoError(t, err)
		return state.Complete
	}
	assert.True(t, complete())
	pod.Spec.InitContainers = nil
	assert.False(t, complete(), "native sidecar missing")
	pod.Spec.InitContainers = []corev1.Container{{Name: "nat"}}
	pod.Spec.Containers = pod.Spec.Containers[:1]
	assert.False(t, complete(), "twin missing")
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "envoy-2"})
	pod.Annotations = nil
	assert.False(t, complete(), "working entry missing")
}
