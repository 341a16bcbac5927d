package rollout

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[key] = value
	}
}

// drive runs a rollout whose batches become ready immediately, and returns the order of the upgraded
// pods.
func drive(t *testing.T, set *v1alpha1.SidecarSet, pods []Pod) []string {
	t.Helper()
	var order []string
	for {
		plan, err := Next(set, pods, nil)
		require.NoError(t, err)
		if len(plan.Pods) == 0 {
			return order
		}
		for _, selected := range plan.Pods {
			order = append(order, selected.Name)
			for i := range pods {
				if pods[i].Reference() == selected.PodReference {
					pods[i].State = updated
				}
			}
		}
	}
}

func TestSpec7_3_ScatterPositionsDoNotDependOnMaxUnavailable(t *testing.T) {
	for maxUnavailable := int32(1); maxUnavailable <= 10; maxUnavailable++ {
		set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
			s.MaxUnavailable = ptr(intstr.FromInt32(maxUnavailable))
			s.ScatterStrategy = v1alpha1.UpdateScatterStrategy{{Key: "foo", Value: "bar"}}
		})
		var pods []Pod
		for i := range 10 {
			pod := newPod(fmt.Sprintf("p%d", i), old)
			if i >= 7 {
				labelled("foo", "bar")(pod.Pod)
			}
			pods = append(pods, pod)
		}
		assert.Equal(t, []string{"p7", "p0", "p1", "p2", "p3", "p8", "p4", "p5", "p6", "p9"}, drive(t, set, pods), "maxUnavailable %d", maxUnavailable)
	}
}

func TestSpec7_3_ScatterPositions(t *testing.T) {
	for _, c := range []struct {
		chosen, all int
		want        []int
	}{
		{3, 10, []int{1, 6, 10}}, {1, 5, []int{1}}, {2, 5, []int{1, 5}}, {5, 5, []int{1, 2, 3, 4, 5}}, {4, 5, []int{1, 2, 4, 5}}, {3, 4, []int{1, 3, 4}},
	} {
		var got []int
		for i := range c.chosen {
			got = append(got, position(i, c.chosen, c.all)+1)
		}
		assert.Equal(t, c.want, got, "%d of %d", c.chosen, c.all)
	}
}

func TestSpec7_3_ScatterStarSpreadsEachValue(t *testing.T) {
	set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.ScatterStrategy = v1alpha1.UpdateScatterStrategy{{Key: "zone", Value: "*"}}
	})
	var pods []Pod
	for i, zone := range []string{"a", "a", "a", "b", "b", "b"} {
		pods = append(pods, newPod(fmt.Sprintf("%s%d", zone, i), old, labelled("zone", zone)))
	}
	// Scatter puts the pods of zone a at the positions 1, 4 and 6. Scatter then spreads the pods
	// of zone b over the result.
	assert.Equal(t, []string{"b3", "a0", "a1", "b4", "a2", "b5"}, drive(t, set, pods))
}

func TestSpec7_3_ScatterPositionsOfPodsWithDifferentValues(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	oneOf := func(values ...string) string { return values[random.IntN(len(values))] }
	for range 300 {
		term := v1alpha1.UpdateScatterTerm{Key: "zone", Value: oneOf("*", "a")}
		other := v1alpha1.UpdateScatterTerm{Key: "disk", Value: oneOf("*", "fast")}
		labels := make([]map[string]string, 1+random.IntN(8))
		for i := range labels {
			labels[i] = map[string]string{oneOf("zone", "none"): oneOf("a", "b", "c"), oneOf("disk", "none"): oneOf("fast", "slow")}
		}
		positions := func(maxUnavailable string) (positions []string) {
			set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
				s.MaxUnavailable = ptr(intstr.Parse(maxUnavailable))
				s.ScatterStrategy = v1alpha1.UpdateScatterStrategy{term, other}
			})
			var pods []Pod
			for i, of := range labels {
				pods = append(pods, newPod(fmt.Sprint(i), old, func(p *corev1.Pod) { p.Labels = of }))
			}
			for _, name := range drive(t, set, pods) {
				i, err := strconv.Atoi(name)
				require.NoError(t, err)
				positions = append(positions, referenceValue(term, candidate{Pod: &pods[i]})+referenceValue(other, candidate{Pod: &pods[i]}))
			}
			return positions
		}
		assert.Equal(t, positions("100%"), positions("1"), "%v, %v: %v", term, other, labels)
	}
}

func TestSpec7_3_ScatterDoesNotCountPodsThatWereNewBefore(t *testing.T) {
	set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.ScatterStrategy = v1alpha1.UpdateScatterStrategy{{Key: "foo", Value: "bar"}}
	})
	injected := podstate.State{Complete: true, Upgradable: true, Consistent: true, Ready: true, Updated: true}
	pods := []Pod{newPod("n1", injected), newPod("n2", injected), newPod("a", old), newPod("b", old), newPod("c", old, labelled("foo", "bar"))}
	assert.Equal(t, []string{"c", "a", "b"}, drive(t, set, pods))
}

func TestSpec7_3_Weights(t *testing.T) {
	set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.MaxUnavailable = ptr(intstr.FromString("100%"))
		s.PriorityStrategy = &v1alpha1.UpdatePriorityStrategy{WeightPriority: []v1alpha1.UpdatePriorityWeightTerm{
			{Weight: 50, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"k": "foo"}}},
			{Weight: 30, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"k": "bar"}}},
			{Weight: 25, MatchSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "l", Operator: metav1.LabelSelectorOpExists}}}},
		}}
	})
	pods := []Pod{
		newPod("a-none", old), newPod("b-bar", old, labelled("k", "bar")), newPod("c-foo", old, labelled("k", "foo")),
		newPod("d-bar-l", old, labelled("k", "bar"), labelled("l", "")), newPod("e-none-down", oldDown),
	}
	assert.Equal(t, []string{"d-bar-l", "c-foo", "b-bar", "e-none-down", "a-none"}, drive(t, set, pods))
}

func TestSpec7_3_OrderedKeys(t *testing.T) {
	set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.PriorityStrategy = &v1alpha1.UpdatePriorityStrategy{OrderPriority: []v1alpha1.UpdatePriorityOrderTerm{{OrderedKey: "first"}, {OrderedKey: "second"}}}
	})
	pods := []Pod{
		newPod("a", old, labelled("second", "99")), newPod("b", old, labelled("first", "sts-9")), newPod("c", old, labelled("first", "sts-10")),
		newPod("d", old, labelled("first", "none")), newPod("e", old), newPod("f", old, labelled("first", "x00010"), labelled("second", "1")),
		newPod("g", old, labelled("first", "123456789012345678901234567890")),
	}
	assert.Equal(t, []string{"e", "g", "c", "f", "b", "d", "a"}, drive(t, set, pods))
}

// Pods that need slots must not prevent the upgrade of a pod that needs no slot, regardless of their number.
func TestSpec7_5_12_UnavailablePodsOfLowPriorityAreUpgraded(t *testing.T) {
	set := unavailable(intstr.FromInt32(0))
	set.Spec.UpdateStrategy.PriorityStrategy = &v1alpha1.UpdatePriorityStrategy{WeightPriority: []v1alpha1.UpdatePriorityWeightTerm{
		{Weight: 100, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"k": "high"}}},
	}}
	pods := []Pod{newPod("down", oldDown)}
	for i := range MaxBatch + MaxQueued + 1 {
		pods = append(pods, newPod(fmt.Sprintf("ready-%d", i), old, labelled("k", "high")))
	}
	plan, err := Next(set, pods, nil)
	require.NoError(t, err)
	require.Len(t, plan.Pods, 1)
	assert.Equal(t, "down", plan.Pods[0].Name)
}

func TestFirstIsTheBeginningOfTheSortedOrder(t *testing.T) {
	var pods []Pod
	for i := range 97 {
		state := old
		if i%7 == 0 {
			state = oldDown
		}
		pods = append(pods, newPod(fmt.Sprintf("p%02d", i*31%97), state))
	}
	candidates := func() []candidate {
		var all []candidate
		for i := range pods {
			all = append(all, newCandidate(&pods[i], &priority{}))
		}
		return all
	}
	sorted := candidates()
	sortCandidates(sorted)
	for n := range 100 {
		assert.Equal(t, sorted[:min(n, len(sorted))], first(candidates(), n))
	}
}

func BenchmarkNext(b *testing.B) {
	for _, share := range []string{"all to go", "all done"} {
		b.Run(share, func(b *testing.B) {
			pods := make([]Pod, 100_000)
			for i := range pods {
				state := old
				if share == "all done" {
					state = updated
				}
				pods[i] = newPod(fmt.Sprintf("p%06d", i*7919%100_000), state)
			}
			set := unavailable(intstr.FromInt32(200))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Next(set, pods, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
