package webhook

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

// setWatch knows when the newest request was made that brought the cache news of
// SidecarSets.
type setWatch struct {
	now   func() time.Time
	asked atomic.Pointer[time.Time]
}

// since is zero before the first one.
func (w *setWatch) since() time.Time {
	if asked := w.asked.Load(); asked != nil {
		return *asked
	}
	return time.Time{}
}

// informerMaker is what a cache makes informers with.
type informerMaker = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// noting has the requests for SidecarSets noted of the informers that are made.
func (w *setWatch) noting(made informerMaker) informerMaker {
	return func(lists toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ofSets := object.(*v1alpha1.SidecarSet); ofSets {
			lists = noted{ListerWatcher: lists, setWatch: w}
		}
		return made(lists, object, resync, indexers)
	}
}

// noted are lists and watches of SidecarSets.
type noted struct {
	toolscache.ListerWatcher
	*setWatch
}

func (n noted) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	asked := n.now()
	list, err := toolscache.ToListerWatcherWithContext(n.ListerWatcher).ListWithContext(ctx, options)
	if err == nil {
		n.asked.Store(&asked)
	}
	return list, err
}

// WatchWithContext believes in a watch once it brings something: the API server
// also grants those that it ends with an error at once.
func (n noted) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	asked := n.now()
	granted, err := toolscache.ToListerWatcherWithContext(n.ListerWatcher).WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(granted, func(event watch.Event) (watch.Event, bool) {
		if event.Type != watch.Error {
			n.asked.Store(&asked)
		}
		return event, true
	}), nil
}
