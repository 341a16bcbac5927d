package rollout

import (
	"maps"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// anyValue is the value of a scatter term that applies to every value of the label.
const anyValue = "*"

// scatter spreads the pods of each term evenly over the whole rollout (SPEC §7.3), and returns the waiting
// pods in order. For example, three of ten pods get the positions 1, 6 and 10. done contains the pods that
// this rollout has upgraded, in any order. These pods get the first positions of their label value, so that
// the positions of the waiting pods do not depend on the progress of the rollout. For the same reason, the
// initial order is sorted by label value.
func scatter(terms v1alpha1.UpdateScatterStrategy, done, waiting []candidate) []candidate {
	all := slices.Concat(done, waiting)
	values := make([][]string, len(terms))
	for i, term := range terms {
		values[i] = valuesOf(term, all)
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		for _, ofTerm := range values {
			if order := strings.Compare(ofTerm[a], ofTerm[b]); order != 0 {
				return order
			}
		}
		return 0
	})
	for _, ofTerm := range values {
		order = spread(order, ofTerm)
	}
	left := make([]candidate, 0, len(waiting))
	for _, i := range order {
		if !all[i].Updated {
			left = append(left, all[i])
		}
	}
	return left
}

// valuesOf returns one string for each pod. If the term spreads the pod, the string is "=" followed by the value
// of the label. Otherwise, the string is empty.
func valuesOf(term v1alpha1.UpdateScatterTerm, all []candidate) []string {
	values := make([]string, len(all))
	for i := range all {
		if value, ok := all[i].Labels[term.Key]; ok && (term.Value == anyValue || term.Value == value) {
			values[i] = "=" + value
		}
	}
	return values
}

// spread moves the pods with a value to evenly spaced positions, for each value in sorted order. The pods
// with a value keep their order. All other pods also keep their order. spread overwrites order.
func spread(order []int, values []string) []int {
	chosen := map[string][]int{}
	for _, pod := range order {
		if value := values[pod]; value != "" {
			chosen[value] = append(chosen[value], pod)
		}
	}
	memory := make([]int, len(order))
	for _, value := range slices.Sorted(maps.Keys(chosen)) {
		others := slices.DeleteFunc(memory[:copy(memory, order)], func(pod int) bool { return values[pod] == value })
		order = order[:0]
		for i, pod := range chosen[value] {
			before := position(i, len(chosen[value]), len(values)) - len(order)
			order = append(append(order, others[:before]...), pod)
			others = others[before:]
		}
		order = append(order, others...)
	}
	return order
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
