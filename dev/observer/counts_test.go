package observer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

// shown is the state of a pod in one event: the images in the spec, the images that run, and the condition
// Ready.
type shown struct {
	asked, runs []string
	ready       bool
	// restarts is the restart count of each container of the sidecar.
	restarts int32
}

func (s shown) pod(names []string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID = "one"
	for i, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: s.asked[i]})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Image: s.runs[i], ImageID: "id", RestartCount: s.restarts})
	}
	status := corev1.ConditionFalse
	if s.ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	return pod
}

// one returns the state of a pod with one sidecar. The restart count depends on runs.
func one(asked, runs string, ready bool) shown {
	return shown{[]string{asked}, []string{runs}, ready, map[string]int32{"v2": 1, "v3": 2, "v4": 3}[runs]}
}

func renamed(ready bool, restarts int32) shown {
	return shown{[]string{"docker.io/library/v1@sha256:1"}, []string{"v1"}, ready, restarts}
}

func twinned(first, second, runsFirst, runsSecond string, ready bool) shown {
	// The total length of the running images serves as a restart count, because it differs after each restart.
	restarts := int32(len(runsFirst + runsSecond))
	return shown{[]string{first, second}, []string{runsFirst, runsSecond}, ready, restarts}
}

func TestAPodIsInFlightFromItsRestartUntilItIsReady(t *testing.T) {
	for name, c := range map[string]struct {
		empty  string
		events []shown
		want   []int
	}{
		"upgraded": {
			"",
			[]shown{one("v1", "v1", true), one("v2", "v1", true), one("v2", "v2", false), one("v2", "v2", true)},
			[]int{0, 1, 1, 0},
		},
		"another name of the same image": {
			"",
			[]shown{one("v1", "v1", true), renamed(true, 0), renamed(false, 1), renamed(true, 1)},
			[]int{0, 1, 1, 0},
		},
		"another name, reverted": {
			"",
			[]shown{one("v1", "v1", true), renamed(true, 0), one("v1", "v1", true)},
			[]int{0, 1, 0},
		},
		"its app crashes later": {
			"",
			[]shown{one("v1", "v1", true), one("v2", "v1", true), one("v2", "v2", true), one("v2", "v2", false), one("v3", "v2", false), one("v3", "v3", false)},
			[]int{0, 1, 0, 0, 0, 0},
		},
		"unready by itself": {
			"",
			[]shown{one("v1", "v1", true), one("v1", "v1", false), one("v2", "v1", false), one("v2", "v2", false), one("v2", "v2", true)},
			[]int{0, 0, 0, 0, 0},
		},
		"new and not ready yet": {
			"",
			[]shown{one("v1", "", false), one("v1", "v1", false), one("v2", "v1", false), one("v2", "v2", true)},
			[]int{0, 0, 0, 0},
		},
		"a second image before it is ready with the first": {
			"",
			[]shown{one("v1", "v1", true), one("bad", "v1", false), one("v2", "v1", false), one("v1", "v1", false), one("v1", "v1", true)},
			[]int{0, 1, 1, 1, 0},
		},
		"ready before its restart": {
			"",
			[]shown{one("v1", "v1", false), one("v2", "v1", false), one("v2", "v1", true), one("v2", "v2", false), one("v2", "v2", true)},
			[]int{0, 0, 1, 1, 0},
		},
		"twins": {
			"empty",
			[]shown{
				twinned("v1", "empty", "v1", "empty", true), twinned("v1", "v2", "v1", "empty", true), twinned("v1", "v2", "v1", "v2", true),
				twinned("empty", "v2", "v1", "v2", true), twinned("empty", "v2", "empty", "v2", false), twinned("empty", "v2", "empty", "v2", true),
			},
			[]int{0, 1, 1, 1, 1, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatch("side", c.empty)
			var got []int
			for _, event := range c.events {
				w.observe(event.pod(w.names))
				got = append(got, w.View().InFlight)
			}
			assert.Equal(t, c.want, got)
			w.forget(c.events[0].pod(w.names))
			assert.Equal(t, View{}, w.View())
		})
	}
}

// A native sidecar is an init container. Other init containers must not restart.
func TestANativeSidecarIsObservedLikeAContainer(t *testing.T) {
	w := newWatch("side", "")
	w.Expect("v2")
	var got []int
	for _, event := range []shown{one("v1", "v1", true), one("v2", "v1", true), one("v2", "v2", false), one("v2", "v2", true)} {
		pod := event.pod(w.names)
		pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, nil
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = pod.Status.ContainerStatuses, nil
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: "first", RestartCount: 2})
		w.observe(pod)
		got = append(got, w.View().InFlight)
	}
	assert.Equal(t, []int{0, 1, 1, 0}, got)
	assert.Equal(t, View{Pods: 1, Ready: 1, Updated: 1, AppRestarts: 2, SidecarRestarts: 1}, w.View())
}
