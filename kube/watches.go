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

// Watches knows of every type in the cache whether the API server still tells of
// its changes. It is safe for concurrent use.
type Watches struct {
	scheme *runtime.Scheme
	clock  clock.Clock
	began  time.Time

	mu    sync.RWMutex
	types map[reflect.Type]*watchedType
}

// watchedType has a watch for each namespace, or one for all of them.
type watchedType struct {
	kind    string
	watches []*watched
}

// NewWatches knows no watch yet; see NewInformer.
func NewWatches(scheme *runtime.Scheme, clock clock.Clock) *Watches {
	return &Watches{scheme: scheme, clock: clock, began: clock.Now(), types: map[reflect.Type]*watchedType{}}
}

// NewInformer is for the options of a cache. Its informers come back within a
// second of the API server, and are noted here.
func (w *Watches) NewInformer(
	lists toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	noted := newWatched(lists, w.clock)
	w.mu.Lock()
	defer w.mu.Unlock()
	of := reflect.TypeOf(object)
	if w.types[of] == nil {
		w.types[of] = &watchedType{kind: w.kind(object)}
	}
	w.types[of].watches = append(w.types[of].watches, noted)
	return newInformer(noted, object, resync, indexers)
}

// Down is for how long the cache may have missed changes to objects of this type;
// zero while it is watched. One that nothing has watched counts as never up.
func (w *Watches) Down(object client.Object) time.Duration {
	down, _ := w.worst(object)
	return down
}

// Current is nil while the cache is fresh enough to decide from what it holds of
// these types. It asks nobody, so that it may be called at every decision.
func (w *Watches) Current(objects ...client.Object) error {
	for _, object := range objects {
		if down, cause := w.worst(object); down > StaleAfter {
			return StaleError{Kind: w.kind(object), Down: down, Cause: cause}
		}
	}
	return nil
}

// CutOff is nil unless, for longer than so much, nobody has answered when this
// type was asked for. A refusal is an answer: who gets one is no worse off than
// other replicas.
func (w *Watches) CutOff(object client.Object, limit time.Duration) error {
	down, cause := w.worst(object)
	var answer apierrors.APIStatus
	if down <= limit || cause == nil || errors.As(cause, &answer) {
		return nil
	}
	return StaleError{Kind: w.kind(object), Down: down, Cause: cause}
}

// StaleError says that a watch is down.
type StaleError struct {
	Kind string
	Down time.Duration
	// Cause is what the last attempt met; nil if it has none yet.
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

// worst is that of the type's watches which is down for the longest.
func (w *Watches) worst(object client.Object) (time.Duration, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	known := w.types[reflect.TypeOf(object)]
	if known == nil {
		return w.clock.Since(w.began), nil
	}
	return known.worst()
}

func (t *watchedType) worst() (longest time.Duration, cause error) {
	for _, one := range t.watches {
		if down, failure := one.down(); down > longest {
			longest, cause = down, failure
		}
	}
	return longest, cause
}

// kind is what the scheme calls a type, or else Go.
func (w *Watches) kind(object runtime.Object) string {
	kind, err := apiutil.GVKForObject(object, w.scheme)
	if err != nil {
		return fmt.Sprintf("%T", object)
	}
	return kind.Kind
}
