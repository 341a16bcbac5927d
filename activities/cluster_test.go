package activities

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube/watches"
)

// testCluster contains Activities with a fake API server, a SidecarSet and pods.
type testCluster struct {
	*Activities
	t     testing.TB
	clock *clocktesting.FakeClock
	pods  podInformer
	// cached is the transform function that the cache of a process applies to pods.
	cached toolscache.TransformFunc
}

// podInformer is a cache that contains only pods.
type podInformer struct {
	cache.Cache
	toolscache.SharedIndexInformer
	// version is the resourceVersion of the cache. API servers always return a resourceVersion for a list,
	// but the fake client does not.
	version *atomic.Value
}

func (i podInformer) LastSyncResourceVersion() string { return i.version.Load().(string) }

func (i podInformer) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return i, nil
}

func (i podInformer) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return i.Cache.Get(ctx, key, o, options...)
	}
	found, ok, err := i.GetIndexer().GetByKey(key.String())
	if cached, isPod := found.(*corev1.Pod); isPod && ok {
		cached.DeepCopyInto(pod)
		return nil
	}
	if err != nil {
		return err
	}
	return notFound(key.Name)
}

// newPodInformer returns an empty cache of pods, and the index of the cache.
func newPodInformer(t testing.TB) (podInformer, *watches.Pods) {
	t.Helper()
	informer := podInformer{SharedIndexInformer: toolscache.NewSharedIndexInformer(nil, &corev1.Pod{}, 0, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}), version: new(atomic.Value)}
	informer.version.Store("")
	index, err := watches.IndexPods(t.Context(), informer)
	require.NoError(t, err)
	return informer, index
}

func newTestCluster(t testing.TB, calls interceptor.Funcs, set *v1alpha1.SidecarSet, pods ...*corev1.Pod) *testCluster {
	t.Helper()
	objects := []client.Object{set}
	for _, pod := range pods {
		objects = append(objects, pod)
	}
	a, clock := newActivities(t, calls, objects...)
	informer, index := newPodInformer(t)
	a.Cache, a.Index, a.Writers = informer, index, 2
	c := &testCluster{Activities: a, t: t, clock: clock, pods: informer, cached: watches.NewPodTransform()}
	c.sync()
	return c
}

// sync updates the cache with all pods of the API server.
func (c *testCluster) sync() {
	c.t.Helper()
	var list corev1.PodList
	require.NoError(c.t, c.Live.(client.Client).List(c.t.Context(), &list))
	var all []any
	for i := range list.Items {
		cached, err := c.cached(&list.Items[i])
		require.NoError(c.t, err)
		all = append(all, cached)
	}
	require.NoError(c.t, c.pods.GetIndexer().Replace(all, ""))
}

// edit changes a pod or a SidecarSet on the API server.
func (c *testCluster) edit(o client.Object, change func()) {
	c.t.Helper()
	server := c.Live.(client.Client)
	require.NoError(c.t, server.Get(c.t.Context(), client.ObjectKeyFromObject(o), o))
	change()
	pod, ok := o.(*corev1.Pod)
	if !ok {
		require.NoError(c.t, server.Update(c.t.Context(), o))
		return
	}
	status := pod.Status.DeepCopy()
	require.NoError(c.t, server.Update(c.t.Context(), pod))
	pod.Status = *status
	require.NoError(c.t, server.Status().Update(c.t.Context(), pod))
}

// images returns the image of the sidecar in the spec of each pod, by pod name.
func (c *testCluster) images() map[string]string {
	c.t.Helper()
	var list corev1.PodList
	require.NoError(c.t, c.Live.(client.Client).List(c.t.Context(), &list))
	images := map[string]string{}
	for i := range list.Items {
		images[list.Items[i].Name] = list.Items[i].Spec.Containers[0].Image
	}
	return images
}

// webSet returns the SidecarSet logs at generation 2, with image side:v2, selector app=web and
// maxUnavailable n.
func webSet(n int) *v1alpha1.SidecarSet {
	set := logs(2)
	set.ResourceVersion = "100"
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v2"}}}
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt(n))
	set.Status.LatestRevision, set.Status.ObservedGeneration = "logs-new", 2
	return fixture.Hashed(set)
}

// webPod returns a ready pod of webSet whose sidecar still has the image side:v1.
func webPod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "d", Name: name, UID: types.UID("u-" + name), ResourceVersion: "7", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{
				v1alpha1.InjectedListAnnotation:     "logs",
				v1alpha1.HashAnnotation:             `{"logs":{"hash":"old"}}`,
				v1alpha1.HashWithoutImageAnnotation: fixture.HashEntry(webSet(1), v1alpha1.HashWithoutImageAnnotation),
			},
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "side", Image: "side:v1"}}},
		Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "side", Image: "side:v1", ImageID: "id-1", Ready: true}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// upgraded changes a pod to the state after a completed upgrade to side:v2.
func upgraded(pod *corev1.Pod) {
	pod.Annotations[v1alpha1.HashAnnotation] = fixture.HashEntry(webSet(1), v1alpha1.HashAnnotation)
	pod.Spec.Containers[0].Image = "side:v2"
	pod.Status.ContainerStatuses[0].Image, pod.Status.ContainerStatuses[0].ImageID = "side:v2", "id-2"
}

func refTo(name string) protocol.PodReference {
	return protocol.PodReference{Namespace: "d", Name: name, UID: types.UID("u-" + name)}
}

func selectedPods(names ...string) (pods []protocol.SelectedPod) {
	for _, name := range names {
		pods = append(pods, protocol.SelectedPod{PodReference: refTo(name)})
	}
	return pods
}

func names[T any](pods []T, reference func(T) protocol.PodReference) []string {
	found := []string{}
	for _, pod := range pods {
		found = append(found, reference(pod).Name)
	}
	return found
}

func selectedNames(pods []protocol.SelectedPod) []string {
	return names(pods, func(p protocol.SelectedPod) protocol.PodReference { return p.PodReference })
}

func writtenNames(pods []protocol.WrittenPod) []string {
	return names(pods, func(p protocol.WrittenPod) protocol.PodReference { return p.PodReference })
}

var webSetReference = protocol.SetReference{Name: "logs", UID: "u1"}

// inActivity calls do with the context of an activity, on a worker that stops when stopping is closed.
// inActivity returns the error of do.
func inActivity(t testing.TB, stopping chan struct{}, do func(context.Context) error) error {
	t.Helper()
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	if stopping != nil {
		env.SetWorkerStopChannel(stopping)
	}
	var err error
	env.RegisterActivityWithOptions(func(ctx context.Context) error {
		err = do(ctx)
		return nil
	}, activity.RegisterOptions{Name: "do"})
	_, failed := env.ExecuteActivity("do")
	require.NoError(t, failed)
	return err
}
