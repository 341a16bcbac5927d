package kube

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/utils/clock"
)

const (
	// minUptime is how long a watch has to last before it counts as up: the API server
	// also grants those that it ends with an error at once, and what it brings takes a
	// moment to reach the cache.
	minUptime = time.Second
	// A type that has been refused for refusalGracePeriod is listed again only every
	// refusalBackoff. An earlier refusal may come from an API server that has just
	// started, and has not read its own roles and definitions yet.
	refusalGracePeriod = 30 * time.Second
	refusalBackoff     = 10 * time.Second
)

// outage is a time without a watch that brings changes.
type outage struct {
	since time.Time
	// granted is when a watch began that ends the outage if it lasts.
	granted time.Time
	cause   error
}

// over reports whether the granted watch has lasted.
func (o *outage) over(now time.Time) bool {
	return !o.granted.IsZero() && now.Sub(o.granted) >= minUptime
}

// monitoredListWatch is a ListerWatcher that records since when its watch is down.
type monitoredListWatch struct {
	lists toolscache.ListerWatcherWithContext
	clock clock.Clock
	// noWatchList is set for a client that lists, and cannot stream the initial list.
	noWatchList bool

	outage atomic.Pointer[outage]
	// mu orders changes of outage; newest is the number of the newest watch.
	mu           sync.Mutex
	newest       int
	refusedSince time.Time
}

func newMonitoredListWatch(lists toolscache.ListerWatcher, clock clock.Clock) *monitoredListWatch {
	w := &monitoredListWatch{
		lists: toolscache.ToListerWatcherWithContext(lists), clock: clock,
		noWatchList: watchlist.DoesClientNotSupportWatchListSemantics(lists),
	}
	w.outage.Store(&outage{since: clock.Now()})
	return w
}

// down is zero while the watch is up.
func (w *monitoredListWatch) down() (time.Duration, error) {
	current := w.outage.Load()
	if current == nil {
		return 0, nil
	}
	now := w.clock.Now()
	if current.over(now) {
		w.outage.CompareAndSwap(current, nil)
		return 0, nil
	}
	return now.Sub(current.since), current.cause
}

// IsWatchListSemanticsUnSupported is called by reflectors.
func (w *monitoredListWatch) IsWatchListSemanticsUnSupported() bool { return w.noWatchList }

// List is for reflectors that pass no context.
func (w *monitoredListWatch) List(options metav1.ListOptions) (runtime.Object, error) {
	return w.ListWithContext(context.Background(), options)
}

// Watch is for reflectors that pass no context.
func (w *monitoredListWatch) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return w.WatchWithContext(context.Background(), options)
}

// ListWithContext delays the return of a refusal that lasts, because the reflector
// would list again at once. Every attempt of it ends here unless it succeeds.
func (w *monitoredListWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := w.lists.ListWithContext(ctx, options)
	if err != nil {
		w.failed(err)
	}
	if !w.refusedForLong(err) {
		return list, err
	}
	timer := w.clock.NewTimer(refusalBackoff)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
	return list, err
}

func (w *monitoredListWatch) refusedForLong(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !refusal(err) {
		w.refusedSince = time.Time{}
		return false
	}
	if w.refusedSince.IsZero() {
		w.refusedSince = w.clock.Now()
	}
	return w.clock.Since(w.refusedSince) >= refusalGracePeriod
}

// refusal reports whether an answer will not change by itself: lost rights, a missing
// definition.
func refusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// WatchWithContext records when the watch begins and when it ends.
func (w *monitoredListWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	granted, err := w.lists.WatchWithContext(ctx, options)
	if err != nil {
		w.failed(err)
		return nil, err
	}
	number := w.begun()
	// One that streams the initial list is behind until its bookmark.
	if options.SendInitialEvents == nil || !*options.SendInitialEvents {
		w.granted(number)
	}
	s := &observedWatch{from: granted, to: make(chan watch.Event), stopped: make(chan struct{})}
	go s.run(func(event watch.Event) { w.observe(number, event) }, func() { w.ended(number, nil) })
	return s, nil
}

func (w *monitoredListWatch) observe(number int, event watch.Event) {
	switch event.Type {
	case watch.Error:
		w.ended(number, apierrors.FromObject(event.Object))
	case watch.Bookmark:
		object, err := meta.Accessor(event.Object)
		if err == nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			w.granted(number)
		}
	}
}

func (w *monitoredListWatch) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest++
	return w.newest
}

// granted records that the watch misses nothing from now on.
func (w *monitoredListWatch) granted(number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	current := w.outage.Load()
	if number != w.newest || current == nil || !current.granted.IsZero() {
		return
	}
	w.outage.Store(&outage{since: current.since, granted: w.clock.Now()})
}

// ended records that the watch brings nothing any more. The end of a watch that has
// been replaced may come late, and does not count.
func (w *monitoredListWatch) ended(number int, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number == w.newest {
		w.brokeLocked(cause)
	}
}

func (w *monitoredListWatch) failed(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.brokeLocked(cause)
}

// brokeLocked begins an outage, or continues the present one. The caller holds mu.
func (w *monitoredListWatch) brokeLocked(cause error) {
	now := w.clock.Now()
	next := &outage{since: now, cause: cause}
	if current := w.outage.Load(); current != nil && !current.over(now) {
		next.since = current.since
		if cause == nil {
			next.cause = current.cause
		}
	}
	w.outage.Store(next)
}

// observedWatch passes on a watch, and reports its events and its end.
type observedWatch struct {
	from    watch.Interface
	to      chan watch.Event
	stop    sync.Once
	stopped chan struct{}
}

func (s *observedWatch) ResultChan() <-chan watch.Event { return s.to }

func (s *observedWatch) Stop() {
	s.stop.Do(func() {
		close(s.stopped)
		s.from.Stop()
	})
}

// run calls ended before the receiver can see the end.
func (s *observedWatch) run(observe func(watch.Event), ended func()) {
	defer close(s.to)
	defer ended()
	for event := range s.from.ResultChan() {
		observe(event)
		select {
		case s.to <- event:
		case <-s.stopped:
			return
		}
	}
}
