package kube

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// StaleAfter is how long a watch may be down before what it brought is too old to
// decide from. A watch that the API server ends, as it does every few minutes, is
// back well before.
const StaleAfter = 2 * time.Second

// Watches records for every type in the cache since when its watch is down. It is
// safe for concurrent use.
type Watches struct {
	scheme *runtime.Scheme
	clock  clock.Clock
	began  time.Time

	mu    sync.RWMutex
	types map[reflect.Type]*typeWatches
}

// typeWatches has a watch for each namespace, or one for all of them.
type typeWatches struct {
	kind    string
	watches []*monitoredListWatch
}

// NewWatches returns Watches without any type; NewInformer adds them.
func NewWatches(scheme *runtime.Scheme, clock clock.Clock) *Watches {
	return &Watches{scheme: scheme, clock: clock, began: clock.Now(), types: map[reflect.Type]*typeWatches{}}
}

// NewInformer is a cache.Options.NewInformer. Its informers come back within a second
// of the API server, and their watches are recorded.
func (w *Watches) NewInformer(
	lists toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	monitored := newMonitoredListWatch(lists, w.clock)
	w.mu.Lock()
	defer w.mu.Unlock()
	of := reflect.TypeOf(object)
	if w.types[of] == nil {
		w.types[of] = &typeWatches{kind: w.kind(object)}
	}
	w.types[of].watches = append(w.types[of].watches, monitored)
	return newInformer(monitored, object, resync, indexers)
}

// Down returns for how long the cache may have missed changes to objects of this
// type; zero while it is watched. A type without any watch counts as never up.
func (w *Watches) Down(object client.Object) time.Duration {
	down, _ := w.worst(object)
	return down
}

// Current returns a StaleError if the cache is too old to decide from what it holds
// of one of these types. It makes no request, so that it may be called at every
// decision.
func (w *Watches) Current(objects ...client.Object) error {
	for _, object := range objects {
		if down, cause := w.worst(object); down > StaleAfter {
			return StaleError{Kind: w.kind(object), Down: down, Cause: cause}
		}
	}
	return nil
}

// CutOff returns an error if requests for this type have had no answer for longer
// than limit. A refusal is an answer: other replicas get the same one.
func (w *Watches) CutOff(object client.Object, limit time.Duration) error {
	down, cause := w.worst(object)
	var answer apierrors.APIStatus
	if down <= limit || cause == nil || errors.As(cause, &answer) {
		return nil
	}
	return StaleError{Kind: w.kind(object), Down: down, Cause: cause}
}

// StaleError is the error of a decision that needs a watch which is down.
type StaleError struct {
	Kind string
	Down time.Duration
	// Cause is the error of the last attempt; nil if there is none yet.
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
	known := w.types[reflect.TypeOf(object)]
	if known == nil {
		return w.clock.Since(w.began), nil
	}
	return known.worst()
}

func (t *typeWatches) worst() (longest time.Duration, cause error) {
	for _, one := range t.watches {
		if down, failure := one.down(); down > longest {
			longest, cause = down, failure
		}
	}
	return longest, cause
}

// kind returns the name of a type in the scheme, or else in Go.
func (w *Watches) kind(object runtime.Object) string {
	kind, err := apiutil.GVKForObject(object, w.scheme)
	if err != nil {
		return fmt.Sprintf("%T", object)
	}
	return kind.Kind
}
