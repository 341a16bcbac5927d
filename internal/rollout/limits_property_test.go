package rollout

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/podstate"
)

// limitedSimulation is a simulation of three zones with pods of three owners, with all limits of a policy. The
// model counts the unavailable pods of each zone and owner independently of the planner.
type limitedSimulation struct {
	*simulation
	zones, perOwner int
	// refused contains the pods whose write is rejected.
	refused map[string]bool
	// late contains the status of each PodDisruptionBudget, which may be outdated.
	late map[string]policyv1.PodDisruptionBudgetStatus
}

func newLimitedSimulation(seed uint64) *limitedSimulation {
	s := &limitedSimulation{simulation: newSimulation(seed), refused: map[string]bool{}, late: map[string]policyv1.PodDisruptionBudgetStatus{}}
	s.pods = nil
	for range 3 + s.random.IntN(24) {
		s.create()
	}
	s.set.Spec.UpdateStrategy.MaxUnavailable = ptr(s.oneOf(intstr.FromInt32(1), intstr.FromInt32(4), intstr.FromString("50%"), intstr.FromString("100%")))
	s.zones, s.perOwner = 1+s.random.IntN(2), 1+s.random.IntN(2)
	s.stage = &protocol.Stage{Policy: "p", Steps: 1, Step: &protocol.Step{
		UpTo: intstr.FromString("100%"), MaxPerOwner: s.perOwner, RespectBudgets: true, Domains: &protocol.Domains{TopologyKey: "zone", MaxUnavailable: s.zones},
	}}
	return s
}

func (s *limitedSimulation) create() {
	s.made++
	state := []podstate.State{old, old, old, old, oldDown}[s.random.IntN(5)]
	s.pods = append(s.pods, newPod(fmt.Sprintf("p%03d", s.made), state, func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"budget": fmt.Sprintf("b-%d", s.random.IntN(2))}
		pod.Spec.NodeName = fmt.Sprintf("z-%d", s.random.IntN(3))
		pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(fmt.Sprintf("o-%d", s.random.IntN(3))), Controller: new(true)}}
	}))
}

// happen makes one random change. A pod may become unready, or ready again, without an upgrade.
func (s *limitedSimulation) happen() {
	i := s.random.IntN(len(s.pods))
	pod := &s.pods[i]
	switch s.random.IntN(12) {
	case 0:
		if len(s.pods) > 1 {
			delete(s.unavailable, pod.Name)
			s.pods = slices.Delete(s.pods, i, i+1)
		}
	case 1:
		s.create()
	case 2:
		s.newGeneration()
	case 3, 4, 5:
		if pod.Consistent {
			pod.Ready = !pod.Ready && !s.unavailable[pod.Name]
		}
	default:
		s.kubelet(pod)
	}
}

// unavailableIn counts, for each group, the pods that upgrades made unavailable.
func (s *limitedSimulation) unavailableIn(group func(*Pod) string) map[string]int {
	counts := map[string]int{}
	for i := range s.pods {
		if s.unavailable[s.pods[i].Name] {
			counts[group(&s.pods[i])]++
		}
	}
	return counts
}

func zoneOf(pod *Pod) string      { return pod.Spec.NodeName }
func ownerNameOf(pod *Pod) string { return string(pod.OwnerReferences[0].UID) }

// write upgrades pods, and checks each write against the limits.
func (s *limitedSimulation) write(t *testing.T, pods []protocol.SelectedPod, matched, generation int, tried map[protocol.PodReference]bool) {
	t.Helper()
	for _, one := range pods {
		if s.refused[one.Name] {
			tried[one.PodReference] = false
			continue
		}
		tried[one.PodReference] = true
		pod := s.pod(one.PodReference)
		if pod == nil {
			continue
		}
		budget := pod.Labels["budget"]
		downBefore, _ := s.down(budget)
		zones, owners, before := s.unavailableIn(zoneOf), s.unavailableIn(ownerNameOf), len(s.unavailable)
		s.apply(t, []protocol.SelectedPod{one}, matched, generation)
		if len(s.unavailable) == before {
			continue
		}
		down, _ := s.down(budget)
		require.True(t, down <= budgetAllows || down == downBefore, "pod %s: %d pods of %s are unavailable", one.Name, down, budget)
		after := s.unavailableIn(zoneOf)
		require.True(t, len(after) <= s.zones || len(after) == len(zones), "pod %s: zones %v are unavailable", one.Name, after)
		for owner, n := range s.unavailableIn(ownerNameOf) {
			require.True(t, n <= s.perOwner || n == owners[owner], "pod %s: %d pods of %s are unavailable", one.Name, n, owner)
		}
	}
}

// batch upgrades pods as UpgradeBatch does, while the cluster changes and the cache is outdated.
func (s *limitedSimulation) batch(t *testing.T, left []protocol.SelectedPod, generation int) {
	t.Helper()
	tried := map[protocol.PodReference]bool{}
	for before := s.view(); len(left) > 0 && s.random.IntN(4) > 0; {
		view, unseen := s.lateView(before)
		plan, err := NextInCluster(s.set, view, nil, s.stage, s.cluster(view))
		require.NoError(t, err)
		refill := plan.Refill(left, tried, unseen)
		s.write(t, refill.Now, len(view), generation, tried)
		left = refill.Left
		s.happen()
	}
}

// down returns the number of unhealthy pods of a budget, and the number of all pods of the budget.
func (s *limitedSimulation) down(budget string) (down, all int) {
	for i := range s.pods {
		if s.pods[i].Labels["budget"] == budget {
			all++
			if !s.pods[i].Ready {
				down++
			}
		}
	}
	return down, all
}

// cluster returns zones and budgets. Each budget allows two unavailable pods. The status of a budget may be
// outdated.
func (s *limitedSimulation) cluster(view []Pod) Cluster {
	var budgets []policyv1.PodDisruptionBudget
	for _, name := range []string{"b-0", "b-1"} {
		down, all := s.down(name)
		if s.random.IntN(2) == 0 {
			s.late[name] = policyv1.PodDisruptionBudgetStatus{
				ExpectedPods: int32(all), CurrentHealthy: int32(all - down), DesiredHealthy: int32(max(all-budgetAllows, 0)), DisruptionsAllowed: int32(max(budgetAllows-down, 0)),
			}
		}
		budget := policyv1.PodDisruptionBudget{Status: s.late[name]}
		budget.Namespace, budget.Name = "d", name
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"budget": name}}
		budget.Spec.MaxUnavailable = new(intstr.FromInt32(budgetAllows))
		budgets = append(budgets, budget)
	}
	var pods []*corev1.Pod
	for i := range view {
		pods = append(pods, asServed(&view[i]))
	}
	return Cluster{Domain: zoned.Domain, Budgets: NewBudgets(budgets, map[string][]*corev1.Pod{"d": pods})}
}

// asServed returns a copy of a pod with the condition Ready. The pods of the other tests have no conditions.
func asServed(pod *Pod) *corev1.Pod {
	served := pod.DeepCopy()
	status := corev1.ConditionFalse
	if pod.Ready {
		status = corev1.ConditionTrue
	}
	served.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	pod.Pod = served
	return served
}

func (s *limitedSimulation) pod(reference protocol.PodReference) *Pod {
	for i := range s.pods {
		if s.pods[i].Reference() == reference {
			return &s.pods[i]
		}
	}
	return nil
}

// budgetAllows is the number of unavailable pods that each budget allows.
const budgetAllows = 2

func TestSpec11_10_LimitsAreKeptAtEveryInstantInAnyPopulation(t *testing.T) {
	upgrades := 0
	for seed := range uint64(stagedPopulations) {
		s := newLimitedSimulation(seed)
		for range 40 {
			generation := s.generation
			view := s.view()
			plan, err := NextInCluster(s.set, view, nil, s.stage, s.cluster(view))
			require.NoError(t, err)
			left := slices.Concat(plan.Pods, plan.Queued)
			if len(left) > 0 {
				s.refused[left[s.random.IntN(len(left))].Name] = s.random.IntN(3) == 0
			}
			for range s.random.IntN(3) {
				s.happen()
			}
			s.batch(t, left, generation)
		}
		upgrades += len(s.upgrades)
	}
	require.Greater(t, upgrades, 10*stagedPopulations, "too few pods were upgraded for a test of limits")
}

func TestSpec11_10_EveryRolloutEndsWithinItsLimits(t *testing.T) {
	for seed := range uint64(stagedPopulations) {
		s := newLimitedSimulation(seed)
		for range 10 {
			s.happen()
		}
		var plan Plan
		for range 200 {
			var err error
			view := s.view()
			plan, err = NextInCluster(s.set, view, nil, s.stage, s.cluster(view))
			require.NoError(t, err)
			if plan.Phase.Ended() {
				break
			}
			s.write(t, plan.Pods, len(s.pods), s.generation, map[protocol.PodReference]bool{})
			for i := range s.pods {
				s.kubelet(&s.pods[i])
			}
		}
		require.True(t, plan.Phase.Ended(), "seed %d: %s: %s", seed, plan.Phase, plan.Message)
	}
}
