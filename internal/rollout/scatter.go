package rollout

import (
	"maps"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// anyValue in a scatter term stands for each value that pods have.
const anyValue = "*"

// scatter spreads the pods of each term evenly over the whole rollout (SPEC §7.3). For example,
// three of ten pods get the positions 1, 6 and 10. The pods that this rollout has upgraded come
// first, in any order. These pods get the first positions of their kind. Therefore, the positions
// of the other pods do not depend on the progress of the rollout. For the same reason, the
// initial order is sorted by kind.
func scatter(terms v1alpha1.UpdateScatterStrategy, done, waiting []candidate) []candidate {
	all := slices.Concat(done, waiting)
	kinds := make([][]string, len(terms))
	for i, term := range terms {
		kinds[i] = kindsOf(term, all)
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		for _, kind := range kinds {
			if order := strings.Compare(kind[a], kind[b]); order != 0 {
				return order
			}
		}
		return 0
	})
	for _, kind := range kinds {
		order = spread(order, kind)
	}
	left := make([]candidate, 0, len(waiting))
	for _, i := range order {
		if !all[i].Updated {
			left = append(left, all[i])
		}
	}
	return left
}

// kindsOf returns the kind of each pod. The kind identifies the value of the label that the term
// spreads. The kind is "" for a pod that the term does not spread.
func kindsOf(term v1alpha1.UpdateScatterTerm, all []candidate) []string {
	kinds := make([]string, len(all))
	for i := range all {
		if value, ok := all[i].Labels[term.Key]; ok && (term.Value == anyValue || term.Value == value) {
			kinds[i] = "=" + value
		}
	}
	return kinds
}

// spread moves the pods of each kind to evenly spaced positions, one kind after the other. The
// pods of a kind keep their order. All other pods also keep their order.
func spread(order []int, kinds []string) []int {
	chosen := map[string][]int{}
	for _, pod := range order {
		if kind := kinds[pod]; kind != "" {
			chosen[kind] = append(chosen[kind], pod)
		}
	}
	s := newSequence(order)
	for _, kind := range slices.Sorted(maps.Keys(chosen)) {
		for _, pod := range chosen[kind] {
			s.remove(pod)
		}
		for i, pod := range chosen[kind] {
			s.insert(pod, position(i, len(chosen[kind]), len(order)))
		}
	}
	return s.order()
}

// position returns the position of the i-th of m pods among n pods. Positions and i start at 0.
// The first pod gets the first position, and the last pod gets the last position. Halves are
// rounded up.
func position(i, m, n int) int {
	if m == 1 {
		return 0
	}
	return (2*i*(n-1) + m - 1) / (2 * (m - 1))
}
