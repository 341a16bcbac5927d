package pods

import (
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	"k8s.io/client-go/tools/cache"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/stage"
)

// compiledSet is a SidecarSet that is prepared for the admission of pods.
type compiledSet struct {
	name  string
	scope match.Scope
	// declared is an object of the cache, and must not be changed.
	declared *v1alpha1.SidecarSet
	newest   *inject.Set
	// newestErr is set if newest cannot be injected. Pods are rejected with this error.
	newestErr error
	// scopeErr is a parse error of the selectors. The scope then contains all pods that
	// the SidecarSet could match.
	scopeErr error
	// former is the revision that is injected into new pods instead of the newest content. If all new pods get
	// the newest content, former is nil.
	former *v1alpha1.GoodRevision
	// complete is set if no pod of the current generation remains to be upgraded or recreated.
	complete bool
	// quarantined is set if no new pod gets the newest content, because the rollout of the newest content
	// failed.
	quarantined bool
	// permitted is set if a member of a fleet may inject the newest content.
	permitted bool
	// share caches the share of the new pods that get the newest content.
	share atomic.Pointer[stepShare]
	// recorded caches the last injected revision, which is either the pinned revision or the last good
	// revision.
	recorded atomic.Pointer[recordedSet]
	// missed is the time of the last search that did not find the pinned revision on the API server. pin
	// shares a search between concurrent requests.
	missed  atomic.Pointer[time.Time]
	pin     singleflight.Group
	metrics setMetrics
}

func (s *compiledSet) paused() bool { return s.declared.Spec.InjectionStrategy.Paused }

func compile(set *v1alpha1.SidecarSet) *compiledSet {
	compiled := &compiledSet{name: set.Name, declared: set}
	compiled.scope, compiled.scopeErr = match.NewScope(&set.Spec)
	completed, err := revision.Completed(set)
	if err != nil {
		compiled.newestErr = err
		return compiled
	}
	compiled.former = stage.Former(completed)
	compiled.complete = stage.Complete(completed)
	compiled.permitted = fleet.Permitted(completed, nil)
	compiled.quarantined = stage.QuarantineOf(completed) != nil
	compiled.newest, compiled.newestErr = prepareNewest(completed)
	return compiled
}

func prepareNewest(completed *v1alpha1.SidecarSet) (*inject.Set, error) {
	name, err := revision.Current(completed)
	if err != nil {
		return nil, err
	}
	return inject.Prepare(completed, name)
}

// setIndex finds SidecarSets by the labels of a pod. An informer feeds the index. setIndex is
// safe for concurrent use.
type setIndex struct {
	log      logr.Logger
	metrics  *metrics
	compiled match.Index[*compiledSet]
}

func newSetIndex(log logr.Logger, metrics *metrics) *setIndex {
	return &setIndex{log: log, metrics: metrics}
}

// matching returns the SidecarSets whose selectors match the labels, ordered by name.
func (i *setIndex) matching(podLabels map[string]string) []*compiledSet {
	return i.compiled.Matching(podLabels)
}

// put adds or replaces a SidecarSet. put removes a terminating SidecarSet, which finalizers may keep for a
// long time.
func (i *setIndex) put(set *v1alpha1.SidecarSet) {
	if set.DeletionTimestamp != nil {
		i.remove(set.Name)
		return
	}
	compiled := compile(set)
	if compiled.scopeErr != nil {
		i.log.Error(compiled.scopeErr, "rejecting new pods that the SidecarSet could match: its selectors cannot be parsed", "sidecarset", set.Name)
	}
	compiled.metrics = i.metrics.ofSet(set.Name)
	i.compiled.Put(set.Name, compiled.scope, compiled)
}

func (i *setIndex) remove(name string) {
	i.compiled.Delete(name)
	i.metrics.forget(name)
}

// events returns a handler that calls put with each object, and remove with the name of each deleted object.
func events[T any](put func(T), remove func(name string)) cache.ResourceEventHandler {
	changed := func(object any) {
		if typed, ok := object.(T); ok {
			put(typed)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, object any) { changed(object) },
		DeleteFunc: func(object any) {
			if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
				remove(name.Name)
			}
		},
	}
}
