package watches

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
	"k8s.io/utils/clock"
)

const (
	// minUptime is the time after which an open watch counts as up. The API server may accept a watch, and
	// then end the watch with an error immediately. Events also need time to reach the cache.
	minUptime = time.Second
	// A list that has been rejected for rejectionGracePeriod is retried only every rejectionBackoff. The grace
	// period is necessary because a starting API server rejects lists until its caches contain all roles and
	// definitions.
	rejectionGracePeriod = 30 * time.Second
	rejectionBackoff     = 10 * time.Second
)

// outage is a time without a working watch.
type outage struct {
	since time.Time
	// opened is the start of the newest watch, or zero while no watch is open. The outage ends once the watch
	// has lasted for minUptime.
	opened time.Time
	cause  error
}

// over reports whether the newest watch has lasted for minUptime.
func (o *outage) over(now time.Time) bool {
	return !o.opened.IsZero() && now.Sub(o.opened) >= minUptime
}

// monitoredListWatch lists and watches a type, and records the outages of the watch.
type monitoredListWatch struct {
	client toolscache.ListerWatcher
	lists  toolscache.ListerWatcherWithContext
	clock  clock.Clock

	outage atomic.Pointer[outage]
	// mu serializes changes of outage. newest is the number of the newest watch.
	mu            sync.Mutex
	newest        int
	rejectedSince time.Time
}

func newMonitoredListWatch(client toolscache.ListerWatcher, clock clock.Clock) *monitoredListWatch {
	w := &monitoredListWatch{client: client, lists: toolscache.ToListerWatcherWithContext(client), clock: clock}
	w.outage.Store(&outage{since: clock.Now()})
	return w
}

// down returns the time for which the watch has been down, and the cause. The time is zero while
// the watch is up.
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

// list delays the return of an error that has lasted for rejectionGracePeriod, because the reflector would
// retry within a second.
func (w *monitoredListWatch) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := w.lists.ListWithContext(ctx, options)
	if err != nil {
		w.failed(err)
	}
	if !w.lastingRejection(err) {
		return list, err
	}
	timer := w.clock.NewTimer(rejectionBackoff)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
	return list, err
}

func (w *monitoredListWatch) lastingRejection(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !rejection(err) {
		w.rejectedSince = time.Time{}
		return false
	}
	if w.rejectedSince.IsZero() {
		w.rejectedSince = w.clock.Now()
	}
	return w.clock.Since(w.rejectedSince) >= rejectionGracePeriod
}

// rejection reports whether a retry can succeed only after a change of the cluster, for example of a Role or
// of a CustomResourceDefinition.
func rejection(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// watch opens a watch, and records the start and the end of the watch.
func (w *monitoredListWatch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	opened, err := w.lists.WatchWithContext(ctx, options)
	if err != nil {
		w.failed(err)
		return nil, err
	}
	number := w.begun()
	// A watch that streams the initial list is current only after the bookmark at the end of the list.
	if options.SendInitialEvents == nil || !*options.SendInitialEvents {
		w.opened(number)
	}
	s := &observedWatch{from: opened, to: make(chan watch.Event), stopped: make(chan struct{})}
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
			w.opened(number)
		}
	}
}

func (w *monitoredListWatch) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest++
	return w.newest
}

// opened records the time from which the watch delivers all changes.
func (w *monitoredListWatch) opened(number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rejectedSince = time.Time{}
	current := w.outage.Load()
	if number != w.newest || current == nil || !current.opened.IsZero() {
		return
	}
	w.outage.Store(&outage{since: current.since, opened: w.clock.Now()})
}

// ended records the end of a watch, unless a newer watch has replaced the watch.
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

// brokeLocked starts an outage, or updates the cause of the current outage. The caller holds mu.
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

// observedWatch forwards the events of a watch, and reports the events and the end of the watch.
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

// run forwards events until the watch ends or is stopped. run calls ended before the receiver can observe the
// end of the watch.
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
