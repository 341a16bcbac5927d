package rollout

import (
	"cmp"
	"maps"
	"slices"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// anyValue in a scatter term stands for each value found.
const anyValue = "*"

// scatter spreads the pods of each term evenly over the whole rollout (SPEC
// §7.3): of ten pods, three take the positions 1, 6 and 10. The pods that this
// rollout has upgraded already stand first, in whatever order: they take the
// first positions of their kind, so that those of the others do not depend
// on how far the rollout is. Nor do the places of the kinds: they start sorted.
func scatter(terms v1alpha1.UpdateScatterStrategy, done, waiting []candidate) []candidate {
	all := append(slices.Clone(done), waiting...)
	slices.SortStableFunc(all, func(a, b candidate) int {
		for _, term := range terms {
			if order := cmp.Compare(kind(term, a), kind(term, b)); order != 0 {
				return order
			}
		}
		return 0
	})
	for _, term := range terms {
		for _, value := range values(term, all) {
			all = spread(all, term.Key, value)
		}
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return c.Updated })
}

// kind is what a term tells of a pod: the value of a label that it spreads, or "".
func kind(term v1alpha1.UpdateScatterTerm, c candidate) string {
	value, ok := c.Labels[term.Key]
	if !ok || term.Value != anyValue && term.Value != value {
		return ""
	}
	return "=" + value
}

func values(term v1alpha1.UpdateScatterTerm, all []candidate) []string {
	if term.Value != anyValue {
		return []string{term.Value}
	}
	found := map[string]bool{}
	for i := range all {
		if value, ok := all[i].Labels[term.Key]; ok {
			found[value] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// spread moves the pods that carry a label to even positions. Among themselves,
// these and the others keep their order.
func spread(all []candidate, key, value string) []candidate {
	var chosen, others []candidate
	for _, c := range all {
		if have, ok := c.Labels[key]; ok && have == value {
			chosen = append(chosen, c)
		} else {
			others = append(others, c)
		}
	}
	result := make([]candidate, 0, len(all))
	for next := 0; len(result) < len(all); {
		if next < len(chosen) && len(result) == position(next, len(chosen), len(all)) {
			result = append(result, chosen[next])
			next++
			continue
		}
		result = append(result, others[0])
		others = others[1:]
	}
	return result
}

// position of the i-th of m among n, counted from 0: the first is the first, the
// last the last, the others in between, halves rounded up.
func position(i, m, n int) int {
	if m == 1 {
		return 0
	}
	return (2*i*(n-1) + m - 1) / (2 * (m - 1))
}
