package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// scattered returns pods with a random value of a label. Some pods are upgraded.
func scattered(random *rand.Rand, pods, values int) (done, waiting []candidate) {
	for i := range pods {
		state := old
		if random.IntN(5) == 0 {
			state = updated
		}
		pod := newPod(fmt.Sprintf("p%05d", i), state, labelled("zone", fmt.Sprintf("z-%d", random.IntN(values))))
		pod.Labels["rack"] = fmt.Sprintf("r-%d", random.IntN(3))
		if random.IntN(10) == 0 {
			delete(pod.Labels, "zone")
		}
		if pod.Updated {
			done = append(done, candidate{Pod: &pod})
		} else {
			waiting = append(waiting, candidate{Pod: &pod})
		}
	}
	return done, waiting
}

func TestSpec7_3_ScatterEqualsTheReferenceImplementation(t *testing.T) {
	terms := []v1alpha1.UpdateScatterTerm{
		{Key: "zone", Value: "*"}, {Key: "rack", Value: "*"}, {Key: "rack", Value: "r-1"}, {Key: "zone", Value: "none"}, {Key: "other", Value: "*"},
	}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 4))
		done, waiting := scattered(random, 1+random.IntN(60), 1+random.IntN(12))
		random.Shuffle(len(terms), func(i, j int) { terms[i], terms[j] = terms[j], terms[i] })
		strategy := v1alpha1.UpdateScatterStrategy(terms[:1+random.IntN(len(terms))])
		want, got := referenceScatter(strategy, done, waiting), scatter(strategy, done, waiting)
		require.Equal(t, namesIn(want), namesIn(got), "seed %d: %v", seed, strategy)
	}
}

func namesIn(candidates []candidate) []string {
	names := make([]string, 0, len(candidates))
	for _, c := range candidates {
		names = append(names, c.Name)
	}
	return names
}

func BenchmarkPlanWithManyScatterValues(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	done, waiting := scattered(random, 10_000, 500)
	var pods []Pod
	for _, c := range slices.Concat(done, waiting) {
		pods = append(pods, *c.Pod)
	}
	set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.ScatterStrategy = v1alpha1.UpdateScatterStrategy{{Key: "zone", Value: "*"}}
	})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Next(set, pods, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// referenceScatter spreads the pods of each term evenly over the whole rollout (SPEC §7.3). For
// example, three of ten pods get the positions 1, 6 and 10. Upgraded pods come first, in any
// order, and get the first positions of their label value. Therefore, the positions of the other
// pods do not depend on the progress of the rollout. The label values are sorted.
func referenceScatter(terms v1alpha1.UpdateScatterStrategy, done, waiting []candidate) []candidate {
	all := append(slices.Clone(done), waiting...)
	slices.SortStableFunc(all, func(a, b candidate) int {
		for _, term := range terms {
			if order := cmp.Compare(referenceValue(term, a), referenceValue(term, b)); order != 0 {
				return order
			}
		}
		return 0
	})
	for _, term := range terms {
		for _, value := range values(term, all) {
			all = referenceSpread(all, term.Key, value)
		}
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return c.Updated })
}

// referenceValue returns the value of the label of a term, or "" if the term does not apply to the
// pod.
func referenceValue(term v1alpha1.UpdateScatterTerm, c candidate) string {
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

// referenceSpread moves the pods with a label value to evenly spaced positions. The moved pods keep their
// order. All other pods also keep their order.
func referenceSpread(all []candidate, key, value string) []candidate {
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
