package watches

import (
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// StaleAfter is the time after which the cache of a watch that is down is too old for decisions. The API
// server ends each watch every few minutes, but the informer reconnects within StaleAfter.
const StaleAfter = 2 * time.Second

// Watches records how long the watch of each cached type has been down. Watches is safe for concurrent use.
type Watches struct {
	scheme *runtime.Scheme
	clock  clock.Clock
	start  time.Time

	mu sync.RWMutex
	// kinds contains, for each kind, a watch for each namespace, or one watch for all namespaces.
	kinds map[string][]*monitoredListWatch
}

// New returns Watches without any type. NewInformer adds types.
func New(scheme *runtime.Scheme, clock clock.Clock) *Watches {
	return &Watches{scheme: scheme, clock: clock, start: clock.Now(), kinds: map[string][]*monitoredListWatch{}}
}

// CacheOptions returns the options of a cache whose watches are recorded. The cached objects lack the fields
// that no role reads.
func (w *Watches) CacheOptions(systemNamespace string) cache.Options {
	inSystemNamespace := map[string]cache.Config{systemNamespace: {}}
	return cache.Options{
		NewInformer:      w.NewInformer,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:       {Transform: NewPodTransform()},
			&corev1.Namespace{}: {Transform: namespaceTransform},
			// Roles read revisions, configuration and Secrets only from the system namespace.
			&appsv1.ControllerRevision{}: {Namespaces: inSystemNamespace},
			&corev1.ConfigMap{}:          {Namespaces: inSystemNamespace},
			&corev1.Secret{}:             {Namespaces: inSystemNamespace},
		},
	}
}

// NewInformer implements cache.Options.NewInformer. The returned informer reconnects within a second after
// the API server responds again. Watches records the outages of the informer.
func (w *Watches) NewInformer(
	lists toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	monitored := newMonitoredListWatch(lists, w.clock)
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := w.kind(object)
	w.kinds[kind] = append(w.kinds[kind], monitored)
	return newInformer(monitored, object, resync, indexers)
}

// Down returns the time for which the cache may have missed changes to objects of this type. The
// time is zero while the watch is up. A type without a watch counts as down since the start.
func (w *Watches) Down(object client.Object) time.Duration {
	down, _ := w.worst(object)
	return down
}

// Current returns a StaleError if the cache of one of the given types is too old for decisions. Current does
// not send a request.
func (w *Watches) Current(objects ...client.Object) error {
	for _, object := range objects {
		if down, cause := w.worst(object); down > StaleAfter {
			return StaleError{Kind: w.kind(object), Down: down, Cause: cause}
		}
	}
	return nil
}

// StaleError is the error about a cache whose watch is down.
type StaleError struct {
	Kind string
	Down time.Duration
	// Cause is the error of the last attempt. Cause is nil before the first attempt ends.
	Cause error
}

func (e StaleError) Error() string {
	message := fmt.Sprintf("the watch of %ss has been down for %s, so that the cache may be out of date", e.Kind, e.Down.Round(100*time.Millisecond))
	if e.Cause != nil {
		message += ": " + e.Cause.Error()
	}
	return message
}

func (e StaleError) Unwrap() error { return e.Cause }

// worst returns the longest outage among the watches of a type.
func (w *Watches) worst(object client.Object) (time.Duration, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	known := w.kinds[w.kind(object)]
	if known == nil {
		return w.clock.Since(w.start), nil
	}
	return worst(known)
}

func worst(watches []*monitoredListWatch) (longest time.Duration, cause error) {
	for _, one := range watches {
		if down, failure := one.down(); down > longest {
			longest, cause = down, failure
		}
	}
	return longest, cause
}

// kind returns the kind of object in the scheme. If the scheme lacks the type, kind returns the name of the Go
// type.
func (w *Watches) kind(object runtime.Object) string {
	kind, err := apiutil.GVKForObject(object, w.scheme)
	if err != nil {
		return fmt.Sprintf("%T", object)
	}
	return kind.Kind
}
