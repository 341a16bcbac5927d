package pods

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
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

// label is one key with one value.
type label struct{ key, value string }

// setIndex finds SidecarSets by the labels of a pod. A set is filed under the
// labels that its selector requires, so that a pod costs nothing for sets that
// it cannot match. It follows an informer and is safe for concurrent use.
type setIndex struct {
	log     logr.Logger
	metrics *metrics

	mu      sync.RWMutex
	filed   map[string][]label
	byLabel map[label]map[string]*compiledSet
	// anywhere holds the sets whose selectors require no label by value.
	anywhere map[string]*compiledSet
}

func newSetIndex(log logr.Logger, metrics *metrics) *setIndex {
	return &setIndex{
		log:      log,
		metrics:  metrics,
		filed:    map[string][]label{},
		byLabel:  map[label]map[string]*compiledSet{},
		anywhere: map[string]*compiledSet{},
	}
}

// matching returns the sets whose selectors take these labels, by name.
func (i *setIndex) matching(podLabels map[string]string) []*compiledSet {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var found []*compiledSet
	collect := func(sets map[string]*compiledSet) {
		for _, set := range sets {
			if set.scope.Labels(podLabels) {
				found = append(found, set)
			}
		}
	}
	collect(i.anywhere)
	for key, value := range podLabels {
		collect(i.byLabel[label{key, value}])
	}
	slices.SortFunc(found, func(a, b *compiledSet) int { return strings.Compare(a.name, b.name) })
	return found
}

func (i *setIndex) put(set *v1alpha1.SidecarSet) {
	compiled := compile(set)
	if compiled.unreadable != nil {
		i.log.Error(compiled.unreadable, "new pods that the SidecarSet could match are refused: its selectors cannot be read", "sidecarSet", set.Name)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.removeLocked(set.Name)
	compiled.metrics = i.metrics.ofSet(set.Name)
	under := required(compiled.scope.PodSelector())
	i.filed[set.Name] = under
	if len(under) == 0 {
		i.anywhere[set.Name] = compiled
	}
	for _, l := range under {
		if i.byLabel[l] == nil {
			i.byLabel[l] = map[string]*compiledSet{}
		}
		i.byLabel[l][set.Name] = compiled
	}
}

func (i *setIndex) remove(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.removeLocked(name)
	i.metrics.forget(name)
}

func (i *setIndex) removeLocked(name string) {
	for _, l := range i.filed[name] {
		delete(i.byLabel[l], name)
		if len(i.byLabel[l]) == 0 {
			delete(i.byLabel, l)
		}
	}
	delete(i.filed, name)
	delete(i.anywhere, name)
}

// required returns labels of which a pod must carry one: those of a single
// requirement, so that a set is found at most once.
func required(selector labels.Selector) []label {
	requirements, _ := selector.Requirements()
	var fewest []label
	for _, requirement := range requirements {
		switch requirement.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
		default:
			continue
		}
		if values := requirement.ValuesUnsorted(); fewest == nil || len(values) < len(fewest) {
			fewest = make([]label, len(values))
			for i, value := range values {
				fewest[i] = label{requirement.Key(), value}
			}
		}
	}
	return fewest
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
