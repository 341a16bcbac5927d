package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

const populations = 10_000

// simulation is a cluster during a rollout. The simulation counts the writes to each pod.
type simulation struct {
	random     *rand.Rand
	set        *v1alpha1.SidecarSet
	pods       []Pod
	generation int
	// upgrades counts the writes to each pod for each generation.
	upgrades map[string]int
	// unavailable contains the pods that were ready when they were upgraded and have not converged since.
	// These pods take slots.
	unavailable map[string]bool
	made        int
	// stage limits the rollout. A nil stage sets no limit.
	stage *protocol.Stage
}

func newSimulation(seed uint64) *simulation {
	s := &simulation{random: rand.New(rand.NewPCG(seed, 1)), upgrades: map[string]int{}, unavailable: map[string]bool{}}
	n := 1 + s.random.IntN(12)
	for range n {
		s.create()
	}
	s.set = strategy(func(u *v1alpha1.SidecarSetUpdateStrategy) {
		u.MaxUnavailable = ptr(s.oneOf(intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromString("20%"), intstr.FromString("60%")))
		u.Partition = ptr(s.oneOf(intstr.FromInt32(0), intstr.FromInt32(0), intstr.FromInt32(2), intstr.FromString("30%")))
		if s.random.IntN(3) == 0 {
			u.ScatterStrategy = v1alpha1.UpdateScatterStrategy{{Key: "zone", Value: "*"}}
		}
		if s.random.IntN(3) == 0 {
			u.PriorityStrategy = &v1alpha1.UpdatePriorityStrategy{OrderPriority: []v1alpha1.UpdatePriorityOrderTerm{{OrderedKey: "zone"}}}
		}
	})
	return s
}

func (s *simulation) oneOf(values ...intstr.IntOrString) intstr.IntOrString {
	return values[s.random.IntN(len(values))]
}

func (s *simulation) create() {
	state := []podstate.State{old, old, old, oldDown, fixed}[s.random.IntN(5)]
	s.made++
	s.pods = append(s.pods, newPod(fmt.Sprintf("p%03d", s.made), state, labelled("zone", fmt.Sprintf("z-%d", s.random.IntN(3)))))
}

// happen makes one random change whose cause is not the rollout.
func (s *simulation) happen() {
	if len(s.pods) == 0 {
		s.create()
		return
	}
	i := s.random.IntN(len(s.pods))
	pod := &s.pods[i]
	switch s.random.IntN(12) {
	case 0:
		delete(s.unavailable, pod.Name)
		s.pods = append(s.pods[:i:i], s.pods[i+1:]...)
	case 1:
		s.create()
	case 2:
		s.newGeneration()
	default:
		s.kubelet(pod)
	}
}

// kubelet applies the upgrade of a pod or, if no upgrade is pending, makes the pod ready.
func (s *simulation) kubelet(pod *Pod) {
	switch {
	case !pod.Consistent:
		pod.Consistent = true
	case !pod.Ready:
		pod.Ready, pod.UnavailableBefore = true, false
		delete(s.unavailable, pod.Name)
	}
}

func (s *simulation) newGeneration() {
	s.generation++
	for i := range s.pods {
		s.pods[i].Updated, s.pods[i].UpgradedToVersion = false, false
	}
}

// view returns the pods as the cache of a worker shows them.
func (s *simulation) view() []Pod { return append([]Pod(nil), s.pods...) }

// lateView returns pods without some of the newest writes, and the number of missing writes.
func (s *simulation) lateView(before []Pod) (view []Pod, unseen int) {
	view = s.view()
	for i := range view {
		for j := range before {
			if before[j].Name == view[i].Name && view[i].Updated && !before[j].Updated && s.random.IntN(2) == 0 {
				view[i] = before[j]
				unseen++
			}
		}
	}
	return view, unseen
}

// refill upgrades queued pods, as UpgradeBatch does while slots are released.
func (s *simulation) refill(t *testing.T, queued []protocol.SelectedPod, before []Pod, generation int) []protocol.SelectedPod {
	view, unseen := s.lateView(before)
	plan, err := NextInStage(s.set, view, nil, s.stage)
	require.NoError(t, err)
	refill := plan.Refill(queued, nil, unseen)
	s.apply(t, refill.Now, len(view), generation)
	return refill.Left
}

// The model implements SPEC §7 independently of the planner.

// keeps returns the number of matched pods that the partition keeps at the old version (SPEC §7.4).
func (s *simulation) keeps(matched int) int {
	partition := s.set.Spec.UpdateStrategy.Partition
	if s.set.Spec.UpdateStrategy.Selector != nil {
		return 0
	}
	if partition.Type == intstr.Int {
		return min(int(partition.IntVal), matched)
	}
	kept := percentOf(partition.StrVal, matched)
	if matched > 1 {
		kept = min(max(kept, 1), matched-1)
	}
	return kept
}

// allows returns the number of pods that may be unavailable at once (SPEC §7.5).
func (s *simulation) allows(matched int) int {
	unavailable := s.set.Spec.UpdateStrategy.MaxUnavailable
	if unavailable.Type == intstr.Int {
		return int(unavailable.IntVal)
	}
	return percentOf(unavailable.StrVal, matched)
}

func percentOf(percent string, n int) int {
	p, err := strconv.Atoi(strings.TrimSuffix(percent, "%"))
	if err != nil {
		panic(err)
	}
	return (p*n + 99) / 100
}

// mayBeWritten reports whether an upgrade may write a pod: the pod is not updated, is upgradable, and either
// cannot start, or is consistent and has no twin to reset.
func mayBeWritten(pod *Pod) bool {
	return !pod.Updated && pod.Upgradable && (pod.Failed || pod.Consistent && !pod.Migrated)
}

// upgradeInProgress reports whether a pod is not converged because of an upgrade.
func upgradeInProgress(pod *Pod) bool {
	return (pod.Updated || pod.UpgradedInPlace) && (!pod.Consistent || !pod.Ready) && !pod.UnavailableBefore
}

// apply upgrades pods like UpgradeBatch, and checks each pod again. matched is the number of
// matched pods in the plan.
func (s *simulation) apply(t *testing.T, pods []protocol.SelectedPod, matched, generation int) {
	if generation != s.generation {
		return // The write gate rejects the writes of an older generation.
	}
	before, updated := len(s.unavailable), updatedOf(s.pods)
	for _, chosen := range pods {
		for i := range s.pods {
			pod := &s.pods[i]
			if pod.Reference() != chosen.PodReference || !mayBeWritten(pod) || chosen.Unready && pod.Ready {
				continue
			}
			s.upgrades[fmt.Sprintf("%s/%d", pod.Name, s.generation)]++
			if pod.Ready {
				s.unavailable[pod.Name] = true
			}
			pod.UnavailableBefore = !pod.Ready && !upgradeInProgress(pod)
			pod.Updated, pod.UpgradedInPlace, pod.UpgradedToVersion, pod.Consistent, pod.Ready = true, true, true, false, false
		}
	}
	// If pods are deleted, a percentage may allow fewer pods than are in progress. In this case,
	// no further pod may be upgraded.
	if len(s.unavailable) > before {
		require.LessOrEqual(t, len(s.unavailable), s.allows(matched), "more ready pods were upgraded than maxUnavailable allows: %v", s.unavailable)
	}
	if updatedOf(s.pods) > updated {
		s.assertWithinStep(t)
	}
	for pod, n := range s.upgrades {
		require.Equal(t, 1, n, "pod %s was upgraded twice", pod)
	}
}

func TestSpec7_MaxUnavailableIsKeptAtEveryInstantInAnyPopulation(t *testing.T) {
	for seed := range uint64(populations) {
		s := newSimulation(seed)
		for range 40 {
			view, generation := s.view(), s.generation
			plan, err := Next(s.set, view, nil)
			require.NoError(t, err)
			// The cluster changes between the plan and its batch.
			created := s.made
			for range s.random.IntN(3) {
				s.happen()
			}
			if s.made != created {
				// A new pod changes the total of which a percentage is computed. The test computes percentages
				// only of the planned number of pods.
				continue
			}
			before, old := updatedOf(s.pods), s.view()
			// Each write checks the number of open slots, including the writes of the first pods of a batch.
			for left := slices.Concat(plan.Pods, plan.Queued); len(left) > 0 && s.random.IntN(4) > 0; {
				left = s.refill(t, left, old, generation)
				if len(s.pods) > 0 {
					s.kubelet(&s.pods[s.random.IntN(len(s.pods))])
				}
			}
			if generation == s.generation {
				require.LessOrEqual(t, updatedOf(s.pods)-before, max(len(view)-s.keeps(len(view))-updatedOf(view), 0), "seed %d: partition", seed)
			}
		}
	}
}

func TestSpec7_ProgressWheneverItIsPossible(t *testing.T) {
	for seed := range uint64(populations) {
		s := newSimulation(seed)
		for range 5 {
			s.happen()
		}
		var plan Plan
		for range 200 {
			var err error
			plan, err = Next(s.set, s.view(), nil)
			require.NoError(t, err)
			if plan.Phase.Ended() {
				break
			}
			s.apply(t, plan.Pods, len(s.pods), s.generation)
			for i := range s.pods {
				s.kubelet(&s.pods[i])
			}
		}
		require.True(t, plan.Phase.Ended(), "seed %d: %s: %s", seed, plan.Phase, plan.Message)
		require.Equal(t, min(len(s.pods)-s.keeps(len(s.pods)), len(s.pods)-plan.Counts.NotUpgradable), updatedOf(s.pods), "seed %d: %s", seed, plan.Message)
	}
}

func TestSpec7_3_PlansDoNotDependOnTheOrderOfTheCache(t *testing.T) {
	for seed := range uint64(populations) {
		s := newSimulation(seed)
		one, err := Next(s.set, s.view(), nil)
		require.NoError(t, err)
		shuffled := s.view()
		s.random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		other, err := Next(s.set, shuffled, nil)
		require.NoError(t, err)
		one.candidates, other.candidates = nil, nil
		require.Equal(t, one, other, "seed %d", seed)
	}
}

func TestSpec7_8_RejectedPodsDoNotStopTheOthers(t *testing.T) {
	for seed := range uint64(populations / 10) {
		s := newSimulation(seed)
		rejected := map[protocol.PodReference]bool{}
		stuck := s.pods[s.random.IntN(len(s.pods))].Reference()
		for range 100 {
			plan, err := Next(s.set, s.view(), rejected)
			require.NoError(t, err)
			if rejected[stuck] && len(plan.Pods) == 1 && plan.Pods[0].PodReference == stuck {
				break
			}
			var allowed []protocol.SelectedPod
			for _, pod := range plan.Pods {
				if pod.PodReference == stuck {
					rejected[stuck] = true
				} else {
					allowed = append(allowed, pod)
				}
			}
			s.apply(t, allowed, len(s.pods), s.generation)
			for i := range s.pods {
				s.kubelet(&s.pods[i])
			}
		}
		plan, err := Next(s.set, s.view(), rejected)
		require.NoError(t, err)
		require.LessOrEqual(t, plan.Counts.Remaining, 1, "seed %d: %s", seed, plan.Message)
	}
}

func updatedOf(pods []Pod) int {
	n := 0
	for i := range pods {
		if pods[i].Updated {
			n++
		}
	}
	return n
}
