package podstate

import (
	"fmt"
	"strings"
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

// upgraded returns a pod whose container side was patched from v1 to v2 at the time patched.
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
	unrecorded := state(`{"imageID":"","restartCount":4,"image":"side:v1"}`)
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod, *corev1.ContainerStatus)
		want   bool
	}{
		{"untouched status", func(*corev1.Pod, *corev1.ContainerStatus) {}, false},
		{"no status", func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Status.ContainerStatuses = nil }, false},
		{"imageID changed", func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.ImageID = "id-2" }, true},
		{"imageID changed, of other digests", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			state(`{"imageID":"docker.io/side@sha256:aa","restartCount":4,"image":"side:v1"}`)(p)
			s.ImageID = "docker.io/side@sha256:bb"
		}, true},
		{"imageID lost", func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.ImageID = "" }, false},
		{"image reported before there is a container", func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.Image, s.ImageID = "side:v2", "" }, false},
		{"first start, status image is the spec's, written in full", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			unrecorded(p)
			s.Image = "docker.io/library/side:v2"
		}, true},
		{"first start, spec image without library", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			unrecorded(p)
			p.Spec.Containers[1].Image, s.Image = "docker.io/side:v2", "docker.io/library/side:v2"
		}, true},
		{"first start, spec image of the index", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			unrecorded(p)
			p.Spec.Containers[1].Image, s.Image = "index.docker.io/team/side:v2", "docker.io/team/side:v2"
		}, true},
		{"first start, spec image of another registry", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			unrecorded(p)
			p.Spec.Containers[1].Image, s.Image = "index.example.com/side:v2", "example.com/side:v2"
		}, false},
		{"nothing recorded, first start with the old image", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			s.RestartCount = 0
			state(`{"imageID":"","restartCount":0}`)(p)
		}, false},
		{"nothing recorded, first start with the new image", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			s.Image, s.RestartCount = "side:v2", 0
			state(`{"imageID":"","restartCount":0}`)(p)
		}, true},
		{"nothing recorded, restarted since", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			s.RestartCount = 1
			state(`{"imageID":"","restartCount":0}`)(p)
		}, true},
		{"nothing recorded by OpenKruise, late start", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(patched.Add(time.Second))}
			state(`{"imageID":""}`)(p)
		}, false},
		{"first start, runs another image that has the digest", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			unrecorded(p)
			s.Image, s.Ready = "side:v1", true
		}, true},
		{"started with the old image while the upgrade was written", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			unrecorded(p)
			s.Image, s.Ready = "side:v1", true
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(patched.Add(-time.Second))}
		}, false},
		{"restarted by a resize with the old image", func(p *corev1.Pod, _ *corev1.ContainerStatus) {
			state(`{"imageID":"id-1","restartCount":3,"image":"side:v1","resizing":true}`)(p)
		}, false},
		{"started with the string of the spec before an upgrade that was reverted", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			state(`{"imageID":"","restartCount":4,"image":"side:v2"}`)(p)
			s.Image, s.Ready = "side:alias", true
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(patched.Add(-time.Second))}
		}, true},
		{"restarted by a resize and by the upgrade", func(p *corev1.Pod, _ *corev1.ContainerStatus) {
			state(`{"imageID":"id-1","restartCount":2,"image":"side:v1","resizing":true}`)(p)
		}, true},
		{"one restart for a resize and the upgrade", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			state(`{"imageID":"id-1","restartCount":3,"image":"side:v1","resizing":true}`)(p)
			s.ImageID = "id-2"
		}, true},
		{"first start, digests equal", func(p *corev1.Pod, s *corev1.ContainerStatus) {
			unrecorded(p)
			p.Spec.Containers[1].Image, s.ImageID = "side@sha256:aa", "docker.io/side@sha256:aa"
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
			assert.Equal(t, !c.want, got.UnavailableByUpgrade())
		})
	}
}

// The kubelet restarts a container when the image string in the spec changes. If the container
// already ran the image of the new string, a matching imageID does not prove that the kubelet has
// restarted the container.
func TestSpec7_AContainerWithTheSameImageIsConsistentOnlyAfterARestart(t *testing.T) {
	const digest = "sha256:aa"
	for _, names := range [][2]string{
		{"side:v1", "docker.io/library/side:v1"}, {"side:v1", "side:v1@" + digest}, {"side", "side:latest"},
		{"side:v1@" + digest, "side:v1"}, {"side:v1", "side:v2"},
	} {
		before, after := names[0], names[1]
		of := func(state string, change func(*corev1.Pod, *corev1.ContainerStatus)) State {
			got, err := version().Of(upgraded(func(p *corev1.Pod, s *corev1.ContainerStatus) {
				p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"s":{"revision":"new","updateTimestamp":"2024-01-02T12:00:00Z","lastContainerStatuses":{"side":` + state + `}}}`
				p.Spec.Containers[1].Image = after
				s.Image, s.ImageID, s.RestartCount = canonicalImage(before), "docker.io/library/side@"+digest, 4
				s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(patched.Add(-time.Minute))}
				change(p, s)
			}))
			require.NoError(t, err)
			return got
		}
		ours := `{"imageID":"docker.io/library/side@` + digest + `","restartCount":4,"image":"` + before + `"}`
		earlier := `{"imageID":"docker.io/library/side@` + digest + `","restartCount":4}`
		theirs := `{"imageID":"docker.io/library/side@` + digest + `"}`
		for _, state := range []string{ours, earlier} {
			waits := of(state, func(*corev1.Pod, *corev1.ContainerStatus) {})
			assert.False(t, waits.Consistent, "%s to %s, by %s", before, after, state)
			assert.True(t, waits.UnavailableByUpgrade(), "it holds its slot")
		}
		for _, state := range []string{ours, earlier} {
			assert.True(t, of(state, func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.RestartCount = 5 }).Consistent, state)
			assert.True(t, of(state, func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.RestartCount = 0 }).Consistent, "the node has lost its count")
		}
		for _, name := range []string{"mirror.local/side@" + digest, digest} {
			assert.False(t, of(ours, func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.ImageID = name }).Consistent,
				"the runtime names the image that runs by another repository: %s", name)
		}
		assert.True(t, of(ours, func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.ImageID = "mirror.local/side@sha256:bb" }).Consistent)
		assert.Equal(t, canonicalImage(before) == canonicalImage(after) || strings.Contains(after, "@"), of(theirs, func(*corev1.Pod, *corev1.ContainerStatus) {}).Consistent,
			"%s to %s: a record of OpenKruise holds no restart count", before, after)
		assert.True(t, of(theirs, func(_ *corev1.Pod, s *corev1.ContainerStatus) {
			s.State.Running.StartedAt = metav1.NewTime(patched.Add(time.Second))
		}).Consistent, "what OpenKruise recorded holds no restart count")
		assert.True(t, of(ours, func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Spec.Containers[1].Image = before }).Consistent,
			"back to the string that it was started with: nothing restarts")
	}
}

func TestSpec7_ANativeSidecarWithTheSameImageIsConsistentOnlyAfterARestart(t *testing.T) {
	for restarts, want := range map[int32]bool{4: false, 5: true} {
		got, err := version().Of(upgraded(func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"s":{"lastContainerStatuses":{"side":{"imageID":"x@sha256:aa","restartCount":4,"image":"side:v1"}}}}`
			p.Spec.InitContainers = []corev1.Container{{Name: "side", Image: "side:v1@sha256:aa", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			s.ImageID, s.RestartCount = "x@sha256:aa", restarts
			p.Spec.Containers, p.Status.InitContainerStatuses, p.Status.ContainerStatuses = nil, p.Status.ContainerStatuses, nil
		}))
		require.NoError(t, err)
		assert.Equal(t, want, got.Consistent, restarts)
	}
}

func TestFailedUpgradesAreRecognised(t *testing.T) {
	for reason, failed := range map[string]bool{
		"ImagePullBackOff": true, "CrashLoopBackOff": true, "ReasonOfALaterKubelet": true,
		"ContainerCreating": false, "PodInitializing": false, "": false,
	} {
		got, err := version().Of(upgraded(func(_ *corev1.Pod, s *corev1.ContainerStatus) {
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
		}))
		require.NoError(t, err)
		assert.Equal(t, failed, got.Failed, reason)
	}
}

// While no node has room for the pod, or an init container crashes, the previous upgrade of the pod does not
// take effect.
func TestSpec7_2_APodWhoseContainersHaveNeverStartedDoesNotWait(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		running, want bool
	}{
		"never started":           {"", "", false, false},
		"has started since":       {"", "id-2", true, true},
		"runs without an imageID": {"", "", true, true},
		"had started before":      {"id-1", "", false, true},
	} {
		got, err := version().Of(upgraded(func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = fmt.Sprintf(`{"s":{"revision":"newer","updateTimestamp":"2024-01-02T12:00:00Z",
				"lastContainerStatuses":{"side":{"imageID":%q,"restartCount":0}}}}`, c.before)
			p.Annotations[v1alpha1.HashAnnotation] = `{"s":{"hash":"newer"}}`
			s.ImageID, s.Image, s.Ready, s.RestartCount, s.State = c.after, "side:other", false, 0, corev1.ContainerState{}
			if c.running {
				s.State.Running = &corev1.ContainerStateRunning{}
			}
		}))
		require.NoError(t, err)
		assert.Equal(t, c.want, got.Waits(), "%s: %+v", name, got)
	}
}

// Container side cannot start, and the kubelet has not observed the upgrade of container app yet.
func TestSpec7_2_APodOfWhichOneContainerCannotStartDoesNotWait(t *testing.T) {
	of := func(waiting *corev1.ContainerStateWaiting) bool {
		pod := upgraded(func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"s":{"revision":"new","updateTimestamp":"2024-01-02T12:00:00Z",
				"lastContainerStatuses":{"side":{"imageID":"id-0","restartCount":4},"app":{"imageID":"id-1","restartCount":0}}}}`
			p.Annotations[v1alpha1.HashAnnotation] = `{"s":{"hash":"older"}}`
			p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "app", Image: "app:0", ImageID: "id-1"}
			s.State.Waiting = waiting
		})
		state, err := version().Of(pod)
		require.NoError(t, err)
		return state.Waits()
	}
	assert.True(t, of(nil))
	assert.False(t, of(&corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}))
}

func TestStartFailureReportsTheReasonsAboutImagesAsOne(t *testing.T) {
	for _, kubelet := range []string{"ErrImagePull", "ImagePullBackOff"} {
		reason, failed := StartFailure(&corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: kubelet}}})
		assert.Equal(t, ImagePullBackOff, reason)
		assert.True(t, failed)
	}
	_, failed := StartFailure(&corev1.ContainerStatus{})
	assert.False(t, failed)
	_, failed = StartFailure(nil)
	assert.False(t, failed)
}

// The clock of the kubelet may be ahead or behind, so only times of the kubelet are compared.
func TestSpec7_5_PodsThatWereNotAvailableCostNothingUntilTheyHaveBeenReady(t *testing.T) {
	const since = "2024-01-02T09:00:00Z"
	for name, c := range map[string]struct {
		recorded, now string
		ready         corev1.ConditionStatus
		want          bool
	}{
		"not ready since before":     {`{"s":"` + since + `"}`, since, corev1.ConditionFalse, true},
		"became ready and not again": {`{"s":"` + since + `"}`, "2024-01-02T08:00:00Z", corev1.ConditionFalse, false},
		"ready now":                  {`{"s":"` + since + `"}`, since, corev1.ConditionTrue, false},
		"recorded for another set":   {`{"o":"` + since + `"}`, since, corev1.ConditionFalse, false},
		"was available":              {"", since, corev1.ConditionFalse, false},
		"unreadable, takes a slot":   {"{", since, corev1.ConditionFalse, false},
	} {
		got, err := version().Of(upgraded(func(p *corev1.Pod, s *corev1.ContainerStatus) {
			at, err := time.Parse(time.RFC3339, c.now)
			require.NoError(t, err)
			p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime = c.ready, metav1.NewTime(at)
			p.Annotations[v1alpha1.UnavailableSinceAnnotation] = c.recorded
			s.ImageID = "id-2"
		}))
		require.NoError(t, err)
		assert.Equal(t, c.want, got.UnavailableBefore, name)
		assert.Equal(t, !c.want && c.ready == corev1.ConditionFalse, got.UnavailableByUpgrade(), name)
	}
}

// If a node does not respond, the control plane changes only the condition Ready of its pods.
func TestSpec7_2_APodOnANodeThatDoesNotRespondWaits(t *testing.T) {
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status}
	}
	const gate = "example.com/gate"
	for name, c := range map[string]struct {
		conditions []corev1.PodCondition
		gates      []corev1.PodReadinessGate
		want       bool
	}{
		"the node does not respond": {[]corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionFalse), condition(corev1.ContainersReady, corev1.ConditionTrue)}, nil, true},
		"ready":                     {[]corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionTrue), condition(corev1.ContainersReady, corev1.ConditionTrue)}, nil, false},
		"a container is not ready":  {[]corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionFalse), condition(corev1.ContainersReady, corev1.ConditionFalse)}, nil, false},
		"no kubelet has reported":   {nil, nil, false},
		"a gate is not true": {[]corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionFalse), condition(corev1.ContainersReady, corev1.ConditionTrue), condition(gate, corev1.ConditionFalse)},
			[]corev1.PodReadinessGate{{ConditionType: gate}}, false},
		"a gate is not reported": {[]corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionFalse), condition(corev1.ContainersReady, corev1.ConditionTrue)},
			[]corev1.PodReadinessGate{{ConditionType: gate}}, false},
		"all gates are true": {[]corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionFalse), condition(corev1.ContainersReady, corev1.ConditionTrue), condition(gate, corev1.ConditionTrue)},
			[]corev1.PodReadinessGate{{ConditionType: gate}}, true},
	} {
		pod := upgraded(func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Spec.ReadinessGates, p.Status.Conditions, s.ImageID = c.gates, c.conditions, "id-2"
		})
		state, err := version().Of(pod)
		require.NoError(t, err)
		assert.Equal(t, c.want, state.NodeLost, name)
		state.Updated = false
		assert.Equal(t, c.want, state.Waits(), name)
		pod.Status.Phase = corev1.PodFailed
		state, err = version().Of(pod)
		require.NoError(t, err)
		assert.False(t, state.NodeLost, name)
	}
}

// After an edit of hotUpgradeEmptyImage, or with a webhook that rewrites images, the image of an empty twin
// differs from the empty image of the SidecarSet.
func TestSpec7_7_OnlyAStandbyThatARecordedSwitchLeftBehindIsReset(t *testing.T) {
	hot := &Version{Set: "s", Sidecars: []Sidecar{{Name: "envoy", EmptyImage: "empty:2"}}}
	for name, c := range map[string]struct {
		image, version string
		want           bool
	}{
		"has another empty image":    {"empty:1", "0", false},
		"rewritten by a webhook":     {"mirror/empty:2", "0", false},
		"left behind":                {"envoy:1", "1", true},
		"left behind, emptied since": {"empty:2", "1", false},
		"nothing recorded":           {"empty:1", "", false},
		"damaged":                    {"envoy:1", "x", true},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			v1alpha1.WorkingHotUpgradeContainerAnnotation: `{"envoy":"envoy-2"}`,
			v1alpha1.VersionAnnotationPrefix + "envoy-1":  c.version,
		}}}
		pod.Spec.Containers = []corev1.Container{{Name: "envoy-1", Image: c.image}, {Name: "envoy-2", Image: "envoy:2"}}
		state, err := hot.Of(pod)
		require.NoError(t, err)
		assert.Equal(t, c.want, state.Migrating, name)
	}
}

func TestSpec3_CompletePodsHaveEverySidecar(t *testing.T) {
	hot := &Version{Set: "s", Sidecars: []Sidecar{{Name: "envoy", EmptyImage: "empty:1"}, {Name: "nat", Native: true}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.WorkingHotUpgradeContainerAnnotation: `{"envoy":"envoy-2"}`}}}
	pod.Spec.Containers = []corev1.Container{{Name: "envoy-1", Image: "empty:1"}, {Name: "envoy-2", Image: "envoy:1"}}
	native := corev1.Container{Name: "nat", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
	pod.Spec.InitContainers = []corev1.Container{native}
	complete := func() bool {
		state, err := hot.Of(pod)
		require.NoError(t, err)
		return state.Complete
	}
	assert.True(t, complete())
	pod.Spec.InitContainers = nil
	assert.False(t, complete(), "native sidecar missing")
	pod.Spec.InitContainers = []corev1.Container{{Name: "nat"}}
	assert.False(t, complete(), "an init container that ends")
	pod.Spec.InitContainers = []corev1.Container{native}
	pod.Spec.Containers = pod.Spec.Containers[:1]
	assert.False(t, complete(), "twin missing")
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "envoy-2"})
	pod.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] = `{"envoy":"envoy-3"}`
	pod.Annotations[v1alpha1.VersionAnnotationPrefix+"envoy-1"] = "1"
	assert.False(t, complete(), "active entry of neither twin")
	assert.Empty(t, hot.StandbysToReset(pod, map[string]string{"envoy": "envoy-3"}), "the only twin that serves")
	pod.Annotations = nil
	assert.False(t, complete(), "active entry missing")
}

func TestSpec7_2_PodsOfEarlierReleasesAreUpgradable(t *testing.T) {
	v := version()
	v.FormerHashWithoutImage = "former"
	for recorded, want := range map[string]bool{"blank": true, "former": true, "another": false, "": false} {
		pod := upgraded(func(p *corev1.Pod, _ *corev1.ContainerStatus) {
			p.Annotations[v1alpha1.HashWithoutImageAnnotation] = `{"s":{"hash":"` + recorded + `"}}`
		})
		state, err := v.Of(pod)
		require.NoError(t, err)
		assert.Equal(t, want, state.Upgradable, recorded)
		assert.Equal(t, recorded == "former", v.RecordedBefore(recorded), recorded)
	}
	assert.False(t, version().RecordedBefore(""), "most versions have no former hash")
}
