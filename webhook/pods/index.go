package pods

import (
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/revision"
)

// compiledSet is what pod admission needs of one SidecarSet.
type compiledSet struct {
	name  string
	scope match.Scope
	// declared is the cache's own: it is only read.
	declared *v1alpha1.SidecarSet
	newest   *inject.Set
	// err says why the newest cannot be injected; it refuses pods.
	err error
	// unreadable says what is wrong with the selectors; then scope holds all that
	// the set could match.
	unreadable error
	// pinned is the last pinned revision that a pod got.
	pinned  atomic.Pointer[pinnedSet]
	metrics setMetrics
}

func (s *compiledSet) paused() bool { return s.declared.Spec.InjectionStrategy.Paused }

func compile(set *v1alpha1.SidecarSet) *compiledSet {
	compiled := &compiledSet{name: set.Name, declared: set}
	compiled.scope, compiled.unreadable = match.NewScope(&set.Spec)
	name, err := revision.Current(set)
	if err == nil {
		compiled.newest, err = inject.Prepare(set, name)
	}
	compiled.err = err
	return compiled
}

// setIndex finds SidecarSets by the labels of a pod. It follows an informer and is safe
// for concurrent use.
type setIndex struct {
	log      logr.Logger
	metrics  *metrics
	compiled match.Index[*compiledSet]
}

func newSetIndex(log logr.Logger, metrics *metrics) *setIndex {
	return &setIndex{log: log, metrics: metrics}
}

// matching returns the sets whose selectors take these labels, by name.
func (i *setIndex) matching(podLabels map[string]string) []*compiledSet {
	return i.compiled.Matching(podLabels)
}

func (i *setIndex) put(set *v1alpha1.SidecarSet) {
	compiled := compile(set)
	if compiled.unreadable != nil {
		i.log.Error(compiled.unreadable, "new pods that the SidecarSet could match are refused: its selectors cannot be read", "sidecarset", set.Name)
	}
	compiled.metrics = i.metrics.ofSet(set.Name)
	i.compiled.Put(set.Name, compiled.scope, compiled)
}

func (i *setIndex) remove(name string) {
	i.compiled.Delete(name)
	i.metrics.forget(name)
}

// handler feeds the index from an informer.
func (i *setIndex) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    i.observe,
		UpdateFunc: func(_, object any) { i.observe(object) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if set, ok := object.(*v1alpha1.SidecarSet); ok {
				i.remove(set.Name)
			}
		},
	}
}

func (i *setIndex) observe(object any) {
	if set, ok := object.(*v1alpha1.SidecarSet); ok {
		i.put(set)
	}
}
