package operator

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube"
)

func TestPodsAreScannedAgainOnlyAfterRelevantChanges(t *testing.T) {
	cache, set, scans := newUninjectedCache(), fixture.SidecarSet("one"), 0
	during := func() {}
	find := func() int {
		t.Helper()
		found, err := cache.find(set, 0, func() (uninjectedPods, error) {
			scans++
			result := uninjectedPods{count: scans}
			during()
			return result, nil
		})
		require.NoError(t, err)
		return found.count
	}
	assert.Equal(t, 1, find())
	assert.Equal(t, 1, find())
	cache.invalidate("other")
	assert.Equal(t, 1, find())
	cache.invalidate("one")
	during = func() { cache.invalidate("one") }
	assert.Equal(t, 2, find())
	during = func() {}
	assert.Equal(t, 3, find(), "what happened during the scan may not be in it")
	set.Generation++
	assert.Equal(t, 4, find())
	set.UID = "another"
	assert.Equal(t, 5, find())
	cache.forget("one")
	assert.Equal(t, 6, find())
}

// The handlers of pod events use the old selector until the index contains the new selector. A scan with the
// new selector may end earlier.
func TestPodsAreScannedAgainOnceASidecarSetIsIndexedAgain(t *testing.T) {
	sets, set := &setLister{limiter: newEnqueueLimiter(clock.RealClock{}), uninjected: newUninjectedCache(), reported: &reports{}}, fixture.SidecarSet("one")
	sets.index(set)
	changed := set.DeepCopy()
	changed.Generation++
	scan := func(count int) func() (uninjectedPods, error) {
		return func() (uninjectedPods, error) { return uninjectedPods{count: count}, nil }
	}
	_, err := sets.uninjected.find(changed, 0, scan(1))
	require.NoError(t, err)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	setEvents(sets, nil).Update(t.Context(), event.TypedUpdateEvent[*v1alpha1.SidecarSet]{ObjectOld: set, ObjectNew: changed}, queue)
	found, err := sets.uninjected.find(changed, 0, scan(2))
	require.NoError(t, err)
	assert.Equal(t, 2, found.count)
	found, err = sets.uninjected.find(changed, 0, scan(3))
	require.NoError(t, err)
	assert.Equal(t, 2, found.count)
	found, err = sets.uninjected.find(changed, 1, scan(3))
	require.NoError(t, err)
	assert.Equal(t, 3, found.count, "the selectors of the webhook have changed")
}

func TestEventsOfPodsReachTheSetsThatTheyLack(t *testing.T) {
	sets := newSetLister(t)
	for _, name := range []string{"one", "other"} {
		set := fixture.SidecarSet(name)
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
		sets.index(set)
	}
	bare := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Labels: map[string]string{"app": "one"}}}
	}
	with := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := bare()
		change(pod)
		return pod
	}
	injected := with(func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.InjectedListAnnotation: "one"} })
	relabelled := with(func(p *corev1.Pod) { p.Labels["app"] = "other" })
	for _, c := range []struct {
		name          string
		before, after *corev1.Pod
		concerned     []string
	}{
		{"created without", nil, bare(), []string{"one"}},
		{"created with", nil, injected, nil},
		{"deleted", bare(), nil, []string{"one"}},
		{"nothing new", bare(), bare(), nil},
		{"relabelled", bare(), relabelled, []string{"one", "other"}},
		{"ended", bare(), with(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), []string{"one"}},
		{"recreated in between", injected, with(func(p *corev1.Pod) { p.UID = "2" }), []string{"one"}},
		{"the list was edited", injected, bare(), []string{"one"}},
		{"an injected pod changes", injected, with(func(p *corev1.Pod) {
			p.Annotations, p.Status.Phase = injected.Annotations, corev1.PodRunning
		}), nil},
	} {
		sets.uninjected = newUninjectedCache()
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		handle := podEvents(sets)
		switch {
		case c.before == nil:
			handle.Create(t.Context(), event.TypedCreateEvent[*corev1.Pod]{Object: c.after}, queue)
		case c.after == nil:
			handle.Delete(t.Context(), event.TypedDeleteEvent[*corev1.Pod]{Object: c.before}, queue)
		default:
			handle.Update(t.Context(), event.TypedUpdateEvent[*corev1.Pod]{ObjectOld: c.before, ObjectNew: c.after}, queue)
		}
		var concerned []string
		for name := range sets.uninjected.sets {
			concerned = append(concerned, name)
		}
		assert.ElementsMatch(t, c.concerned, concerned, c.name)
		queue.ShutDown()
	}
}

func newSetLister(t *testing.T, cached ...client.Object) *setLister {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	return &setLister{
		Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(cached...).Build(), namespace: "kruise-system",
		limiter: newEnqueueLimiter(clock.RealClock{}), uninjected: newUninjectedCache(), reported: &reports{},
	}
}

// Each of many teams has one SidecarSet, which selects a namespace by name or by label.
func TestOnePodEventEnqueuesTheSetOfItsNamespaceAlone(t *testing.T) {
	objects, specs := []client.Object{}, map[string]v1alpha1.SidecarSetSpec{}
	for i := range 500 {
		team := fmt.Sprint("team-", i)
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: map[string]string{"team": team}}})
		spec := v1alpha1.SidecarSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
		if i%2 == 0 {
			spec.Namespace = team
		} else {
			spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
		}
		specs[team] = spec
	}
	closed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "closed", Labels: map[string]string{"team": "team-1", v1alpha1.InjectionLabel: v1alpha1.InjectionDisabled}}}
	sets := newSetLister(t, append(objects, closed, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-system"}})...)
	for name, spec := range specs {
		sets.index(&v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	sets.uninjected = newUninjectedCache()
	for _, c := range []struct {
		namespace string
		want      []string
	}{
		{"team-8", []string{"team-8"}},
		{"team-9", []string{"team-9"}},
		{"closed", nil},
		{"kruise-system", nil},
	} {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "a", Labels: map[string]string{"app": "web"}}}
		podEvents(sets).Create(t.Context(), event.TypedCreateEvent[*corev1.Pod]{Object: pod}, queue)
		assert.Equal(t, c.want, drain(queue), c.namespace)
		queue.ShutDown()
	}
	assert.Equal(t, 2, len(sets.uninjected.sets), "the others are not scanned again")
}

// The installed webhook selects namespaces by a label.
func TestPodsAreScannedAgainOnceTheWebhookIsCalledForTheirNamespace(t *testing.T) {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: kube.WebhookConfigurationName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: kube.PodWebhookName, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"mesh": "on"}},
		}},
	}
	set := fixture.SidecarSet("one")
	sets := newSetLister(t, set, configuration)
	webhook := &podWebhook{live: sets.Reader, namespace: "kruise-system", clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0))}
	for _, c := range []struct {
		labels map[string]string
		want   int
	}{{map[string]string{"team": "a"}, 0}, {map[string]string{"mesh": "on"}, 1}} {
		queue := newWaits()
		before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
		after := before.DeepCopy()
		after.Labels = c.labels
		namespaceEvents(sets, webhook).Update(t.Context(), event.TypedUpdateEvent[*corev1.Namespace]{ObjectOld: before, ObjectNew: after}, queue)
		assert.Len(t, queue.all, c.want)
		queue.ShutDown()
	}
}

// The cache may contain a pod before the cache contains the namespace of the pod. The scan of pods determines
// whether the SidecarSet matches, and is retried until the cache contains the namespace.
func TestAnEventOfAPodWhoseNamespaceIsUnknownReachesTheSet(t *testing.T) {
	sets := newSetLister(t)
	set := fixture.SidecarSet("one")
	set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	sets.index(set)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "late", Name: "a", Labels: set.Spec.Selector.MatchLabels}}
	podEvents(sets).Create(t.Context(), event.TypedCreateEvent[*corev1.Pod]{Object: pod}, queue)
	assert.Equal(t, []string{"one"}, drain(queue))
}
