package observer

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// tape sends events to an observer and records the violated rules.
type tape struct {
	*Observer
	now    time.Time
	number uint64
	broken []string
}

func newTape() *tape {
	tape := &tape{now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	tape.Observer = New(func(v Violation) { tape.broken = append(tape.broken, v.Rule) })
	return tape
}

func (t *tape) event(object client.Object) event {
	t.number++
	t.now = t.now.Add(10 * time.Millisecond)
	return event{object: object, seen: t.now}
}

func (t *tape) set(image string, change func(*v1alpha1.SidecarSet)) {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "one", Generation: int64(t.number)}}
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "hash-" + image}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: image}}}
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(1))
	if change != nil {
		change(set)
	}
	t.observeSet(t.event(set), set)
}

// seen is the state of a pod in an event.
type seen struct {
	asked, runs string
	ready       bool
	change      func(*corev1.Pod)
}

func (t *tape) pod(n int, s seen) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(n), UID: types.UID(fmt.Sprint(n)), Labels: map[string]string{"app": "web"}}}
	pod.Annotations = map[string]string{
		v1alpha1.InjectedListAnnotation: "one", v1alpha1.HashAnnotation: fmt.Sprintf(`{"one":{"hash":"hash-%s"}}`, s.asked),
	}
	injected := []corev1.EnvVar{{Name: injectedEnv, Value: "true"}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app"}, {Name: "side", Image: s.asked, Env: injected}}
	pod.Status.Phase = corev1.PodRunning
	status := corev1.ConditionFalse
	if s.ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "app", Image: "app", ImageID: "app", Ready: s.ready}, {Name: "side", Image: s.runs, ImageID: s.runs, Ready: s.ready},
	}
	if s.change != nil {
		s.change(pod)
	}
	t.observePod(t.event(pod), pod)
}

// begin returns a tape with a SidecarSet and the given number of ready pods.
func begin(pods int) *tape {
	t := newTape()
	t.set("v1", nil)
	for n := range pods {
		t.pod(n, seen{asked: "v1", runs: "v1", ready: true})
	}
	return t
}

func hot(set *v1alpha1.SidecarSet) {
	set.Spec.Containers[0].UpgradeStrategy.UpgradeType = v1alpha1.SidecarContainerHotUpgrade
	set.Spec.Containers[0].UpgradeStrategy.HotUpgradeEmptyImage = "empty"
}

// twins sets the images of the twins of a hot pod, in spec and status.
func twins(active, first, second string, ready bool) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] = fmt.Sprintf(`{"side":%q}`, active)
		pod.Spec.Containers = []corev1.Container{{Name: "side-1", Image: first}, {Name: "side-2", Image: second}}
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Env = []corev1.EnvVar{{Name: injectedEnv, Value: "true"}}
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "side-1", Image: first, ImageID: first, Ready: ready}, {Name: "side-2", Image: second, ImageID: second, Ready: ready},
		}
	}
}

// crashed sets the status of a pod whose app crashes in a loop while the sidecar serves.
func crashed(pod *corev1.Pod) {
	app, side := &pod.Status.ContainerStatuses[0], &pod.Status.ContainerStatuses[1]
	app.RestartCount, app.State.Waiting = 1, &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	side.Ready = true
}

func TestCrashedAndRejectedPodsConverge(t *testing.T) {
	tape := begin(2)
	tape.set("v2", func(set *v1alpha1.SidecarSet) {
		set.Status = v1alpha1.SidecarSetStatus{MatchedPods: 2, UpdatedPods: 1, ReadyPods: 1, ObservedGeneration: set.Generation}
	})
	tape.pod(0, seen{asked: "v1", runs: "v1", ready: true, change: func(pod *corev1.Pod) { pod.Labels[RejectedLabel] = "ever" }})
	tape.pod(1, seen{asked: "v1", runs: "v1", change: crashed})
	assert.NotEmpty(t, tape.Pending(), "a pod whose app crashes is upgraded")
	tape.pod(1, seen{asked: "v2", runs: "v2", change: crashed})
	assert.Empty(t, tape.Pending())
	tape.pod(1, seen{asked: "v2", runs: "v2", change: func(pod *corev1.Pod) {
		crashed(pod)
		pod.Status.ContainerStatuses[1].Ready = false
	}})
	assert.NotEmpty(t, tape.Pending(), "its sidecar is to serve")
}

func TestObserverReportsViolatedRules(t *testing.T) {
	for name, c := range map[string]struct {
		play func(*tape)
		want []string
	}{
		"one after the other": {func(t *tape) {
			t.set("v2", nil)
			for n := range 3 {
				t.pod(n, seen{asked: "v2", runs: "v1", ready: true})
				t.pod(n, seen{asked: "v2", runs: "v2"})
				t.pod(n, seen{asked: "v2", runs: "v2", ready: true})
			}
		}, nil},
		"two at once": {func(t *tape) {
			t.set("v2", nil)
			t.pod(0, seen{asked: "v2", runs: "v1", ready: true})
			t.pod(1, seen{asked: "v2", runs: "v1", ready: true})
		}, []string{"bound"}},
		"the second generation while the first is on its way": {func(t *tape) {
			t.set("v2", nil)
			t.pod(0, seen{asked: "v2", runs: "v2"})
			t.set("v3", nil)
			t.pod(1, seen{asked: "v3", runs: "v1", ready: true})
		}, []string{"bound"}},
		"an unready pod takes no slot": {func(t *tape) {
			t.pod(0, seen{asked: "v1", runs: "v1"})
			t.set("v2", nil)
			t.pod(0, seen{asked: "v2", runs: "v1"})
			t.pod(1, seen{asked: "v2", runs: "v1", ready: true})
		}, nil},
		"a smaller maxUnavailable is observed in time": {func(t *tape) {
			t.set("v2", func(set *v1alpha1.SidecarSet) { set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(3)) })
			t.pod(0, seen{asked: "v2", runs: "v1", ready: true})
			t.set("v2", nil)
			t.pod(1, seen{asked: "v2", runs: "v1", ready: true})
		}, nil},
		"and not ignored": {func(t *tape) {
			t.set("v2", func(set *v1alpha1.SidecarSet) { set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(3)) })
			t.pod(0, seen{asked: "v2", runs: "v1", ready: true})
			t.set("v2", nil)
			t.now = t.now.Add(10 * time.Second)
			t.pod(1, seen{asked: "v2", runs: "v1", ready: true})
		}, []string{"bound"}},
		"an older generation": {func(t *tape) {
			t.set("v2", nil)
			t.set("v3", nil)
			t.now = t.now.Add(10 * time.Second)
			t.pod(0, seen{asked: "v2", runs: "v1", ready: true})
		}, []string{"fence"}},
		"during a pause": {func(t *tape) {
			t.set("v2", func(set *v1alpha1.SidecarSet) { set.Spec.UpdateStrategy.Paused = true })
			t.now = t.now.Add(10 * time.Second)
			t.pod(0, seen{asked: "v2", runs: "v1", ready: true})
		}, []string{"fence"}},
		"after the deletion of the SidecarSet": {func(t *tape) {
			t.set("v2", func(set *v1alpha1.SidecarSet) { set.DeletionTimestamp = new(metav1.Now()) })
			t.now = t.now.Add(10 * time.Second)
			t.pod(0, seen{asked: "v2", runs: "v1", ready: true})
		}, []string{"fence"}},
		"while its run is paused": {func(t *tape) {
			t.set("v2", nil)
			t.pauses["one"] = t.now
			t.now = t.now.Add(10 * time.Second)
			t.pod(0, seen{asked: "v2", runs: "v1", ready: true})
		}, []string{"pause"}},
		"more than the partition allows": {func(t *tape) {
			t.set("v2", func(set *v1alpha1.SidecarSet) { set.Spec.UpdateStrategy.Partition = new(intstr.FromString("50%")) })
			t.now = t.now.Add(2 * time.Minute)
			for n := range 2 {
				t.pod(n, seen{asked: "v2", runs: "v1", ready: true})
				t.pod(n, seen{asked: "v2", runs: "v2", ready: true})
			}
		}, []string{"partition"}},
		"the app": {func(t *tape) {
			t.pod(0, seen{asked: "v1", runs: "v1", ready: true, change: func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].RestartCount = 1 }})
		}, []string{"app"}},
		"a hot upgrade": {func(t *tape) {
			t.set("v1", hot)
			t.pod(9, seen{asked: "v1", ready: true, change: twins("side-1", "v1", "empty", true)})
			t.set("v2", hot)
			t.pod(9, seen{asked: "v2", ready: true, change: twins("side-2", "v1", "v2", true)})
			t.pod(9, seen{asked: "v2", ready: true, change: twins("side-2", "empty", "v2", true)})
		}, nil},
		"an app that crashed after its upgrade does not count": {func(t *tape) {
			t.set("v2", nil)
			t.pod(0, seen{asked: "v2", runs: "v1", ready: true})
			t.pod(0, seen{asked: "v2", runs: "v2", ready: true})
			t.pod(0, seen{asked: "v2", runs: "v2", change: crashed})
			t.pod(1, seen{asked: "v2", runs: "v1", ready: true})
		}, nil},
		"nor when it is upgraded again": {func(t *tape) {
			t.pod(0, seen{asked: "v1", runs: "v1", change: crashed})
			t.set("v2", nil)
			t.pod(0, seen{asked: "v2", runs: "v1", change: crashed})
			t.pod(0, seen{asked: "v2", runs: "v2", change: crashed})
			t.pod(1, seen{asked: "v2", runs: "v1", ready: true})
		}, nil},
		"an app that crashed in its upgrade counts, whatever the sidecar does": {func(t *tape) {
			t.set("v2", nil)
			t.pod(0, seen{asked: "v2", runs: "v1", ready: true})
			t.pod(0, seen{asked: "v2", runs: "v2", change: crashed})
			t.set("v3", nil)
			t.pod(0, seen{asked: "v3", runs: "v3", change: crashed})
			t.pod(1, seen{asked: "v3", runs: "v1", ready: true})
		}, []string{"bound"}},
		"another name of the image restarts the container": {func(t *tape) {
			t.set("docker.io/library/v1", nil)
			alias := func(pod *corev1.Pod) { pod.Status.ContainerStatuses[1].ImageID = "v1" }
			t.pod(0, seen{asked: "docker.io/library/v1", runs: "v1", ready: true, change: alias})
			t.pod(1, seen{asked: "docker.io/library/v1", runs: "v1", ready: true, change: alias})
		}, []string{"bound"}},
		"the active twin": {func(t *tape) {
			t.set("v1", hot)
			t.pod(9, seen{asked: "v1", ready: true, change: twins("side-1", "v1", "empty", true)})
			t.set("v2", hot)
			t.pod(9, seen{asked: "v2", ready: true, change: twins("side-1", "v2", "empty", true)})
		}, []string{"twins"}},
		"emptied too early": {func(t *tape) {
			t.set("v1", hot)
			t.pod(9, seen{asked: "v1", ready: true, change: twins("side-1", "v1", "empty", true)})
			t.set("v2", hot)
			t.pod(9, seen{asked: "v2", change: twins("side-2", "v1", "v2", false)})
			t.pod(9, seen{asked: "v2", change: twins("side-2", "empty", "v2", false)})
		}, []string{"twins"}},
	} {
		t.Run(name, func(t *testing.T) {
			tape := begin(3)
			c.play(tape)
			assert.Equal(t, c.want, tape.broken)
		})
	}
}

// If a process sends a write and is then suspended, the write may arrive after the process continues.
func TestLateEventsAreNoViolation(t *testing.T) {
	tape := begin(3)
	tape.set("v2", nil)
	tape.late = append(tape.late, interval{from: tape.now, until: tape.now.Add(30 * time.Second)})
	tape.set("v3", nil)
	tape.now = tape.now.Add(31 * time.Second)
	tape.pod(0, seen{asked: "v2", runs: "v1", ready: true})
	assert.Empty(t, tape.broken)
	tape.now = tape.now.Add(31 * time.Second)
	tape.pod(0, seen{asked: "v2", runs: "v2", ready: true})
	tape.pod(1, seen{asked: "v2", runs: "v1", ready: true})
	assert.Equal(t, []string{"fence"}, tape.broken)
}

// The API server stores a pod in protobuf, and a SidecarSet in JSON.
func TestObjectsAreDecodedAsTheAPIServerStoresThem(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}}
	var stored bytes.Buffer
	storage := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	require.NoError(t, scheme.Codecs.EncoderForVersion(storage, corev1.SchemeGroupVersion).Encode(pod, &stored))
	decoded, err := decode(podsPrefix+"shop/web-1", stored.Bytes())
	require.NoError(t, err)
	assert.Equal(t, "web-1", decoded.GetName())
	decoded, err = decode(setsPrefix+"one", []byte(`{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet","metadata":{"name":"one"}}`))
	require.NoError(t, err)
	assert.Equal(t, "one", decoded.GetName())
	decoded, err = decode("/registry/leases/chaos/one", []byte("else"))
	require.NoError(t, err)
	assert.Nil(t, decoded)
	for key, value := range map[string]string{podsPrefix + "a/b": "nonsense", setsPrefix + "one": `{"apiVersion":"apps.kruise.io/v1beta1"}`} {
		_, err = decode(key, []byte(value))
		require.ErrorContains(t, err, key)
	}
}

// If the kubelet sets Ready back to False with the earlier transition time, the pod uses no slot (SPEC §7.5).
// If the pod serves again, the pod uses a slot only after fenceTime, because a writer may not have observed the
// condition yet.
func TestAReadyConditionWithdrawnByTheKubeletDoesNotCount(t *testing.T) {
	since := func(at time.Time) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at) }
	}
	for name, c := range map[string]struct {
		unready, wait time.Duration
		serves        bool
		want          []string
	}{
		"withdrawn":                 {},
		"unready again":             {unready: 5 * time.Second, want: []string{"bound"}},
		"it serves since a moment":  {serves: true},
		"it serves for a long time": {serves: true, wait: fenceTime, want: []string{"bound"}},
	} {
		t.Run(name, func(t *testing.T) {
			tape := begin(2)
			down := tape.now
			tape.pod(0, seen{asked: "v1", runs: "v1", change: since(down)})
			tape.set("v2", nil)
			tape.pod(0, seen{asked: "v2", runs: "v1", change: since(down)})
			tape.pod(0, seen{asked: "v2", runs: "v1", ready: true, change: since(down.Add(time.Second))})
			tape.pod(0, seen{asked: "v2", runs: "v1", change: since(down.Add(c.unready))})
			tape.now = tape.now.Add(time.Minute)
			if c.serves {
				tape.pod(0, seen{asked: "v2", runs: "v1", ready: true, change: since(down.Add(time.Minute))})
			}
			tape.now = tape.now.Add(c.wait)
			tape.pod(1, seen{asked: "v2", runs: "v1", ready: true})
			assert.Equal(t, c.want, tape.broken)
		})
	}
}
