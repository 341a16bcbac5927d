package match

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Index stores a value for each SidecarSet, and finds the values of the SidecarSets that select a pod. Index
// groups SidecarSets by the labels that their selectors require, so that a lookup skips SidecarSets that cannot
// match. The zero value is empty and ready for concurrent use.
type Index[T any] struct {
	mu      sync.RWMutex
	keys    map[string][]label
	byLabel map[label]map[string]*indexed[T]
	// anywhere contains the SidecarSets whose selectors require no label with a specific value.
	anywhere map[string]*indexed[T]
}

type label struct{ key, value string }

type indexed[T any] struct {
	set   string
	scope Scope
	value T
}

// Put adds or replaces the value of a SidecarSet.
func (i *Index[T]) Put(set string, scope Scope, value T) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.keys == nil {
		i.keys, i.byLabel, i.anywhere = map[string][]label{}, map[label]map[string]*indexed[T]{}, map[string]*indexed[T]{}
	}
	i.deleteLocked(set)
	entry, under := &indexed[T]{set, scope, value}, required(scope.PodSelector())
	i.keys[set] = under
	if len(under) == 0 {
		i.anywhere[set] = entry
	}
	for _, l := range under {
		if i.byLabel[l] == nil {
			i.byLabel[l] = map[string]*indexed[T]{}
		}
		i.byLabel[l][set] = entry
	}
}

// Delete removes a SidecarSet.
func (i *Index[T]) Delete(set string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.deleteLocked(set)
}

func (i *Index[T]) deleteLocked(set string) {
	for _, l := range i.keys[set] {
		delete(i.byLabel[l], set)
		if len(i.byLabel[l]) == 0 {
			delete(i.byLabel, l)
		}
	}
	delete(i.keys, set)
	delete(i.anywhere, set)
}

// Matching returns the values of the SidecarSets that select podLabels, sorted by the name of the
// SidecarSet. Matching ignores namespaces.
func (i *Index[T]) Matching(podLabels map[string]string) []T {
	var found []*indexed[T]
	collect := func(sets map[string]*indexed[T]) {
		for _, entry := range sets {
			if entry.scope.Labels(podLabels) {
				found = append(found, entry)
			}
		}
	}
	i.mu.RLock()
	collect(i.anywhere)
	for key, value := range podLabels {
		collect(i.byLabel[label{key, value}])
	}
	i.mu.RUnlock()
	slices.SortFunc(found, func(a, b *indexed[T]) int { return strings.Compare(a.set, b.set) })
	values := make([]T, len(found))
	for n, entry := range found {
		values[n] = entry.value
	}
	return values
}

// required returns the labels that one requirement of the selector accepts, or nil if no requirement lists
// accepted values. required chooses the requirement with the fewest values. A matching pod has exactly one
// of these labels, so a lookup finds a SidecarSet at most once.
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
