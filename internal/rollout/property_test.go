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

// world is a fleet under a rollout: what the kubelets and chance do to it, and
// what has been done to each pod.
type world struct {
	random     *rand.Rand
	set        *v1alpha1.SidecarSet
	pods       []Pod
	generation int
	// upgrades counts the writes to each pod for each generation.
	upgrades map[string]int
	// taken are the pods that served when they were written and have not
	// settled since: the ones that the budget is about.
	taken map[string]bool
	made  int
}

func newWorld(seed uint64) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), upgrades: map[string]int{}, taken: map[string]bool{}}
	n := 1 + w.random.IntN(12)
	for range n {
		w.create()
	}
	w.set = strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.MaxUnavailable = ptr(w.oneOf(intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromString("20%"), intstr.FromString("60%")))
		s.Partition = ptr(w.oneOf(intstr.FromInt32(0), intstr.FromInt32(0), intstr.FromInt32(2), intstr.FromString("30%")))
		if w.random.IntN(3) == 0 {
			s.ScatterStrategy = v1alpha1.UpdateScatterStrategy{{Key: "zone", Value: "*"}}
		}
		if w.random.IntN(3) == 0 {
			s.PriorityStrategy = &v1alpha1.UpdatePriorityStrategy{OrderPriority: []v1alpha1.UpdatePriorityOrderTerm{{OrderedKey: "zone"}}}
		}
	})
	return w
}

func (w *world) oneOf(values ...intstr.IntOrString) intstr.IntOrString {
	return values[w.random.IntN(len(values))]
}

func (w *world) create() {
	state := []podstate.State{old, old, old, oldDown, fixed}[w.random.IntN(5)]
	w.made++
	w.pods = append(w.pods, newPod(fmt.Sprintf("p%03d", w.made), state, labelled("zone", fmt.Sprintf("z-%d", w.random.IntN(3)))))
}

// happen lets one thing happen that no rollout does.
func (w *world) happen() {
	if len(w.pods) == 0 {
		w.create()
		return
	}
	i := w.random.IntN(len(w.pods))
	pod := &w.pods[i]
	switch w.random.IntN(12) {
	case 0:
		delete(w.taken, pod.Name)
		w.pods = append(w.pods[:i:i], w.pods[i+1:]...)
	case 1:
		w.create()
	case 2:
		w.newGeneration()
	default:
		w.kubelet(pod)
	}
}

// kubelet takes a write, and makes a pod ready that has taken it.
func (w *world) kubelet(pod *Pod) {
	switch {
	case !pod.Consistent:
		pod.Consistent = true
	case !pod.Ready:
		pod.Ready, pod.UnavailableBefore = true, false
		delete(w.taken, pod.Name)
	}
}

func (w *world) newGeneration() {
	w.generation++
	for i := range w.pods {
		w.pods[i].Updated, w.pods[i].UpgradedToVersion = false, false
	}
}

// view is what a worker's cache shows: as late as it likes, but never without
// the writes that have been made.
func (w *world) view() []Pod { return append([]Pod(nil), w.pods...) }

// lateView is one that lacks some of the newest writes; it also returns how many.
func (w *world) lateView(before []Pod) (view []Pod, unseen int) {
	view = w.view()
	for i := range view {
		for j := range before {
			if before[j].Name == view[i].Name && view[i].Updated && !before[j].Updated && w.random.IntN(2) == 0 {
				view[i] = before[j]
				unseen++
			}
		}
	}
	return view, unseen
}

// refill takes pods of the reserve, as UpgradeBatch does while slots become free.
func (w *world) refill(t *testing.T, reserve []protocol.SelectedPod, before []Pod, generation int) []protocol.SelectedPod {
	view, unseen := w.lateView(before)
	plan, err := Next(w.set, view, nil)
	require.NoError(t, err)
	refill := plan.Refill(reserve, nil, unseen)
	w.apply(t, refill.Now, len(view), generation)
	return refill.Left
}

// The model has SPEC §7 in its own words: none of the code that plans.

// keeps is how many of the matched pods the partition keeps old (SPEC §7.4).
func (w *world) keeps(matched int) int {
	partition := w.set.Spec.UpdateStrategy.Partition
	if partition.Type == intstr.Int {
		return min(int(partition.IntVal), matched)
	}
	kept := percentOf(partition.StrVal, matched)
	if matched > 1 {
		kept = min(max(kept, 1), matched-1)
	}
	return kept
}

// allows is how many pods may be unavailable at once (SPEC §7.5).
func (w *world) allows(matched int) int {
	unavailable := w.set.Spec.UpdateStrategy.MaxUnavailable
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

// mayBeWritten pods are not updated, differ in images alone, and have taken their
// previous upgrade, or cannot.
func mayBeWritten(pod *Pod) bool {
	return !pod.Updated && pod.Upgradable && (pod.Failed || pod.Consistent && !pod.Migrated)
}

// wasTaken pods are down because of an upgrade.
func wasTaken(pod *Pod) bool {
	return (pod.Updated || pod.UpgradedInPlace) && (!pod.Consistent || !pod.Ready) && !pod.UnavailableBefore
}

// apply writes to pods, as UpgradeBatch does: each is judged once more. They were
// planned for so many matched pods.
func (w *world) apply(t *testing.T, pods []protocol.SelectedPod, matched, generation int) {
	if generation != w.generation {
		return // the fence
	}
	before := len(w.taken)
	for _, chosen := range pods {
		for i := range w.pods {
			pod := &w.pods[i]
			if pod.Reference() != chosen.PodReference || !mayBeWritten(pod) || chosen.Unready && pod.Ready {
				continue
			}
			w.upgrades[fmt.Sprintf("%s/%d", pod.Name, w.generation)]++
			if pod.Ready {
				w.taken[pod.Name] = true
			}
			pod.UnavailableBefore = !pod.Ready && !wasTaken(pod)
			pod.Updated, pod.UpgradedInPlace, pod.UpgradedToVersion, pod.Consistent, pod.Ready = true, true, true, false, false
		}
	}
	// A percentage of a fleet that shrinks may leave more in flight than it
	// allows now; then nothing is added.
	if len(w.taken) > before {
		require.LessOrEqual(t, len(w.taken), w.allows(matched), "more serving pods were taken than the budget allows: %v", w.taken)
	}
	for pod, n := range w.upgrades {
		require.Equal(t, 1, n, "pod %s was upgraded twice", pod)
	}
}

func TestSpec7_MaxUnavailableIsKeptAtEveryInstantInAnyPopulation(t *testing.T) {
	for seed := range uint64(populations) {
		w := newWorld(seed)
		for range 40 {
			view, generation := w.view(), w.generation
			plan, err := Next(w.set, view, nil)
			require.NoError(t, err)
			// A plan is carried out after the world has moved on.
			created := w.made
			for range w.random.IntN(3) {
				w.happen()
			}
			if w.made != created {
				continue // percentages of another fleet: compared below only for the planned one
			}
			before, old := updatedOf(w.pods), w.view()
			// The room is counted at the write, for the first ones too.
			for left := slices.Concat(plan.Pods, plan.Queued); len(left) > 0 && w.random.IntN(4) > 0; {
				left = w.refill(t, left, old, generation)
				if len(w.pods) > 0 {
					w.kubelet(&w.pods[w.random.IntN(len(w.pods))])
				}
			}
			if generation == w.generation {
				require.LessOrEqual(t, updatedOf(w.pods)-before, max(len(view)-w.keeps(len(view))-updatedOf(view), 0), "seed %d: partition", seed)
			}
		}
	}
}

func TestSpec7_ProgressWheneverItIsPossible(t *testing.T) {
	for seed := range uint64(populations) {
		w := newWorld(seed)
		for range 5 {
			w.happen()
		}
		var plan Plan
		for range 200 {
			var err error
			plan, err = Next(w.set, w.view(), nil)
			require.NoError(t, err)
			if plan.Phase.Ended() {
				break
			}
			w.apply(t, plan.Pods, len(w.pods), w.generation)
			for i := range w.pods {
				w.kubelet(&w.pods[i])
			}
		}
		require.True(t, plan.Phase.Ended(), "seed %d: %s: %s", seed, plan.Phase, plan.Message)
		require.Equal(t, min(len(w.pods)-w.keeps(len(w.pods)), len(w.pods)-plan.Counts.NotUpgradable), updatedOf(w.pods), "seed %d: %s", seed, plan.Message)
	}
}

func TestSpec7_3_PlansDoNotDependOnTheOrderOfTheCache(t *testing.T) {
	for seed := range uint64(populations) {
		w := newWorld(seed)
		one, err := Next(w.set, w.view(), nil)
		require.NoError(t, err)
		shuffled := w.view()
		w.random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		other, err := Next(w.set, shuffled, nil)
		require.NoError(t, err)
		one.candidates, other.candidates = nil, nil
		require.Equal(t, one, other, "seed %d", seed)
	}
}

func TestSpec7_8_RejectedPodsDoNotStopTheOthers(t *testing.T) {
	for seed := range uint64(populations / 10) {
		w := newWorld(seed)
		rejected := map[protocol.PodReference]bool{}
		stuck := w.pods[w.random.IntN(len(w.pods))].Reference()
		for range 100 {
			plan, err := Next(w.set, w.view(), rejected)
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
			w.apply(t, allowed, len(w.pods), w.generation)
			for i := range w.pods {
				w.kubelet(&w.pods[i])
			}
		}
		plan, err := Next(w.set, w.view(), rejected)
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
