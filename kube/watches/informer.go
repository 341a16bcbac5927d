package watches

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// forbiddenInterval is the additional delay of an optional informer without the permission to list its kind.
const forbiddenInterval = 15 * time.Second

// backoffReset is the uptime after which the backoff starts again with the first delay.
const backoffReset = 2 * time.Minute

// newBackoff returns the delays between the attempts to reconnect. The default backoff of the reflector waits
// up to a minute, so caches would stay stale long after the API server responds again.
func newBackoff() wait.DelayFunc {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Cap: 800 * time.Millisecond, Jitter: 0.25, Steps: math.MaxInt32}
	return backoff.DelayWithReset(clock.RealClock{}, backoffReset)
}

// informer is a SharedIndexInformer that reconnects with newBackoff.
type informer struct{ toolscache.SharedIndexInformer }

// NewOptionalInformer returns an informer that reconnects like the informers of Watches, and that retries less often
// while the process has no permission to list the kind.
func NewOptionalInformer(
	lists toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	adapter := &reflectorAdapter{monitoredListWatch: newMonitoredListWatch(lists, clock.RealClock{}), forbidden: forbiddenInterval}
	return adapter.informer(object, resync, indexers)
}

func newInformer(lists *monitoredListWatch, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) informer {
	return (&reflectorAdapter{monitoredListWatch: lists}).informer(object, resync, indexers)
}

func (a *reflectorAdapter) informer(object runtime.Object, resync time.Duration, indexers toolscache.Indexers) informer {
	shared := toolscache.NewSharedIndexInformer(a.listerWatcher(), object, resync, indexers)
	// SetWatchErrorHandlerWithContext fails only after the informer has started.
	_ = shared.SetWatchErrorHandlerWithContext(a.run)
	return informer{shared}
}

// LastSyncResourceVersion returns the resourceVersion up to which the store contains all writes. The
// resourceVersion of the reflector may be newer than the store.
func (i informer) LastSyncResourceVersion() string {
	return i.GetIndexer().LastStoreSyncResourceVersion()
}

// reflectorAdapter replaces the backoff of a reflector. Shared informers have no option for this backoff
// (kubernetes/kubernetes#136943). reflectorAdapter lets the first attempt of the reflector fail. The error
// handler of the reflector then retries with newBackoff.
type reflectorAdapter struct {
	*monitoredListWatch
	running atomic.Bool
	// forbidden is the delay after a list that the API server forbids, in addition to the backoff.
	forbidden time.Duration
}

var errNotRunning = errors.New("the reflector adapter is not running yet")

// run is the error handler of the reflector. run lists and watches until the context ends.
func (a *reflectorAdapter) run(ctx context.Context, reflector *toolscache.Reflector, _ error) {
	a.running.Store(true)
	_ = newBackoff().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
			if a.forbidden > 0 && apierrors.IsForbidden(err) {
				sleep(ctx, a.forbidden)
			}
		}
		return false, nil
	})
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (a *reflectorAdapter) listerWatcher() toolscache.ListerWatcher {
	return toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{ListWithContextFunc: a.list, WatchFuncWithContext: a.watch}, a.client)
}

func (a *reflectorAdapter) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if !a.running.Load() {
		return nil, errNotRunning
	}
	return a.monitoredListWatch.list(ctx, options)
}

// watch retries after refused connections and after throttling, because the reflector would retry these errors
// with the longer default backoff.
func (a *reflectorAdapter) watch(ctx context.Context, options metav1.ListOptions) (opened watch.Interface, err error) {
	if !a.running.Load() {
		return nil, errNotRunning
	}
	_ = newBackoff().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		opened, err = a.monitoredListWatch.watch(ctx, options)
		return !utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err), nil
	})
	return opened, err
}
