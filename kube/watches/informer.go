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

func newInformer(lists *monitoredListWatch, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) informer {
	adapter := &reflectorAdapter{monitoredListWatch: lists}
	shared := toolscache.NewSharedIndexInformer(adapter.listerWatcher(), object, resync, indexers)
	// SetWatchErrorHandlerWithContext fails only after the informer has started.
	_ = shared.SetWatchErrorHandlerWithContext(adapter.run)
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
}

var errNotRunning = errors.New("the reflector adapter is not running yet")

// run is the error handler of the reflector. run lists and watches until the context ends.
func (a *reflectorAdapter) run(ctx context.Context, reflector *toolscache.Reflector, _ error) {
	a.running.Store(true)
	_ = newBackoff().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
		}
		return false, nil
	})
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
