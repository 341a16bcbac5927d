package registration

import (
	"context"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// setWatch remembers the newest request that brought the cache news of
// SidecarSets.
type setWatch struct {
	now       func() time.Time
	requested atomic.Pointer[time.Time]
}

// lastRequest is zero before the first one.
func (w *setWatch) lastRequest() time.Time {
	if requested := w.requested.Load(); requested != nil {
		return *requested
	}
	return time.Time{}
}

// NewInformerFunc is what a cache makes informers with.
type NewInformerFunc = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// observing remembers the requests for SidecarSets of the informers that are made.
func (w *setWatch) observing(made NewInformerFunc) NewInformerFunc {
	return func(lists toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ofSets := object.(*v1alpha1.SidecarSet); ofSets {
			lists = observedListerWatcher{ListerWatcher: lists, setWatch: w}
		}
		return made(lists, object, resync, indexers)
	}
}

// observedListerWatcher notes when SidecarSets are listed and watched.
type observedListerWatcher struct {
	toolscache.ListerWatcher
	*setWatch
}

func (n observedListerWatcher) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	requested := n.now()
	list, err := toolscache.ToListerWatcherWithContext(n.ListerWatcher).ListWithContext(ctx, options)
	if err == nil {
		n.requested.Store(&requested)
	}
	return list, err
}

// WatchWithContext counts a watch once it brings something: the API server
// also grants those that it ends with an error at once.
func (n observedListerWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	requested := n.now()
	granted, err := toolscache.ToListerWatcherWithContext(n.ListerWatcher).WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(granted, func(event watch.Event) (watch.Event, bool) {
		if event.Type != watch.Error {
			n.requested.Store(&requested)
		}
		return event, true
	}), nil
}
