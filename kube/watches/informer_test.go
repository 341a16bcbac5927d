package watches

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

func versioned(name, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: version,
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "somebody"}},
	}}
}

// source is an API server that streams pods, and then the events that the test sends.
type source struct {
	mu      sync.Mutex
	pods    []*corev1.Pod
	version string
	refused int
	// opened receives the opened watches.
	opened chan *watch.FakeWatcher
}

func (s *source) listWatch() *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, syscall.ECONNREFUSED },
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.refused > 0 {
				s.refused--
				return nil, syscall.ECONNREFUSED
			}
			if options.SendInitialEvents == nil {
				// A restarted API server does not have the changes since the resourceVersion of the client.
				gone := watch.NewFakeWithChanSize(1, false)
				status := apierrors.NewResourceExpired("too old resource version").Status()
				gone.Error(&status)
				return gone, nil
			}
			from := watch.NewFakeWithChanSize(10, false)
			for _, pod := range s.pods {
				from.Add(pod.DeepCopy())
			}
			end := initialEnd()
			end.ResourceVersion = s.version
			from.Action(watch.Bookmark, end)
			s.opened <- from
			return from, nil
		},
	}
}

// handled receives the events of a handler, in order.
type handled chan string

func (h handled) handler() toolscache.ResourceEventHandler {
	say := func(verb string, object any) {
		pod := lastState(object)
		h <- fmt.Sprintf("%s %s/%s", verb, pod.Name, pod.ResourceVersion)
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { say("add", object) },
		UpdateFunc: func(_, object any) { say("update", object) },
		DeleteFunc: func(object any) { say("delete", object) },
	}
}

// lastState unwraps a pod whose deletion was not observed.
func lastState(object any) *corev1.Pod {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	return object.(*corev1.Pod)
}

func (h handled) next(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = <-h
	}
	return all
}

func TestAnInformerCatchesUpAfterAnOutage(t *testing.T) {
	api := &source{
		pods: []*corev1.Pod{versioned("changed", "1"), versioned("gone", "2"), versioned("same", "3")}, version: "3",
		opened: make(chan *watch.FakeWatcher, 1),
	}
	followed := newInformer(newMonitoredListWatch(api.listWatch(), clock.RealClock{}), &corev1.Pod{}, 0, toolscache.Indexers{})
	var seen sync.Map
	require.NoError(t, followed.SetTransform(func(object any) (any, error) {
		if _, already := seen.Load(object); already {
			return nil, errors.New("a reader may have this object")
		}
		if pod, ok := object.(*corev1.Pod); ok {
			pod.ManagedFields = nil
		}
		return object, nil
	}))
	events := make(handled, 20)
	see := func(object any) {
		seen.Store(lastState(object), true)
		assert.Empty(t, lastState(object).ManagedFields)
	}
	_, err := followed.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: see,
	})
	require.NoError(t, err)
	_, err = followed.AddEventHandler(events.handler())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		followed.RunWithContext(ctx)
		close(ended)
	}()
	require.ElementsMatch(t, []string{"add changed/1", "add gone/2", "add same/3"}, events.next(3))
	require.True(t, toolscache.WaitForCacheSync(ctx.Done(), followed.HasSynced))

	pods := &Pods{informer: followed}
	shows := func(version string) bool {
		shown, err := pods.Shows(version)
		require.NoError(t, err)
		return shown
	}
	first := <-api.opened
	first.Modify(versioned("changed", "4"))
	first.Add(versioned("new", "5"))
	first.Delete(versioned("new", "6"))
	require.Equal(t, []string{"update changed/4", "add new/5", "delete new/6"}, events.next(3))
	assert.True(t, shows("6"))
	assert.False(t, shows("7"))
	first.Action(watch.Bookmark, versioned("", "7"))
	require.Eventually(t, func() bool { return shows("7") }, 10*time.Second, time.Millisecond)

	api.mu.Lock()
	api.pods = []*corev1.Pod{versioned("newest", "12"), versioned("newer", "11"), versioned("changed", "8"), versioned("same", "3"), versioned("new", "9"), versioned("older", "10")}
	api.refused, api.version = 6, "20"
	api.mu.Unlock()
	refused := time.Now()
	first.Stop()
	second := <-api.opened
	assert.Less(t, time.Since(refused), 15*time.Second, "the reflector's own backoff would take 25 s at least")
	require.Equal(t, []string{"delete gone/2"}, events.next(1), "deletions come first")
	assert.True(t, shows("20"), "the store shows the whole list before the first event of it")
	assert.ElementsMatch(t, []string{"default/changed", "default/same", "default/new", "default/older", "default/newer", "default/newest"}, followed.GetIndexer().ListKeys())
	require.ElementsMatch(t, []string{"update changed/8", "update same/3", "add new/9", "add older/10", "add newer/11", "add newest/12"}, events.next(6))
	second.Delete(versioned("same", "23"))
	require.Equal(t, []string{"delete same/23"}, events.next(1))
	assert.True(t, shows("23"))
	assert.ElementsMatch(t, []string{"default/changed", "default/new", "default/older", "default/newer", "default/newest"}, followed.GetIndexer().ListKeys())
	for _, object := range followed.GetIndexer().List() {
		assert.Empty(t, object.(*corev1.Pod).ManagedFields)
	}
	stop()
	<-ended
	assert.True(t, second.IsStopped())
	assert.True(t, followed.IsStopped())
}

func TestAnInformerThatNeverGotAnAnswerEnds(t *testing.T) {
	api := &source{refused: 1 << 30}
	followed := newInformer(newMonitoredListWatch(api.listWatch(), clock.RealClock{}), &corev1.Pod{}, 0, toolscache.Indexers{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		followed.Run(ctx.Done())
		close(ended)
	}()
	stop()
	<-ended
	assert.False(t, followed.HasSynced())
}
