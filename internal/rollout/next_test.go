package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

var noon = time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)

// States of pods in test tables.
var (
	old      = podstate.State{Complete: true, Upgradable: true, Consistent: true, Ready: true}
	oldDown  = podstate.State{Complete: true, Upgradable: true, Consistent: true}
	updated  = podstate.State{Complete: true, Upgradable: true, Consistent: true, Ready: true, Updated: true, UpgradedInPlace: true, UpgradedToVersion: true}
	restart  = podstate.State{Complete: true, Upgradable: true, Updated: true, UpgradedInPlace: true, UpgradedToVersion: true}
	fixed    = podstate.State{Complete: true, Consistent: true, Ready: true}
	previous = podstate.State{Complete: true, Upgradable: true, UpgradedInPlace: true}
	broken   = podstate.State{Complete: true, Upgradable: true, UpgradedInPlace: true, Failed: true}
	deadWhen = podstate.State{Complete: true, Upgradable: true, Updated: true, UpgradedInPlace: true, UpgradedToVersion: true, Consistent: true, UnavailableBefore: true}
)

func newPod(name string, state podstate.State, change ...func(*corev1.Pod)) Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("u-" + name), CreationTimestamp: metav1.NewTime(noon)},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(pod)
	}
	return Pod{Pod: pod, State: state}
}

func strategy(change func(*v1alpha1.SidecarSetUpdateStrategy)) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	set.Spec.UpdateStrategy.Type = v1alpha1.RollingUpdateSidecarSetStrategyType
	if change != nil {
		change(&set.Spec.UpdateStrategy)
	}
	return set
}

func ptr(v intstr.IntOrString) *intstr.IntOrString { return &v }

func unavailable(v intstr.IntOrString) *v1alpha1.SidecarSet {
	return strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) { s.MaxUnavailable = ptr(v) })
}

func matched(states ...podstate.State) []Pod {
	var pods []Pod
	for i, state := range states {
		pods = append(pods, newPod(string(rune('a'+i)), state))
	}
	return pods
}

// chosen returns the names of the pods of a plan, in order. An asterisk marks a pod that needs no
// slot.
func chosen(plan Plan) []string {
	names := []string{}
	for _, pod := range plan.Pods {
		star := ""
		if pod.Unready {
			star = "*"
		}
		names = append(names, pod.Name+star)
	}
	return names
}

func TestSpec7_Next(t *testing.T) {
	canary := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "true"}}
		s.Partition = ptr(intstr.FromInt32(3))
	})
	held := func(v intstr.IntOrString) *v1alpha1.SidecarSet {
		return strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
			s.Partition, s.MaxUnavailable = ptr(v), ptr(intstr.FromString("100%"))
		})
	}
	labelled := matched(old, old, old)
	labelled[1].Labels = map[string]string{"canary": "true"}
	for _, c := range []struct {
		name    string
		set     *v1alpha1.SidecarSet
		pods    []Pod
		phase   protocol.Phase
		chosen  []string
		remains int
	}{
		{"1 not update", strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) { s.Type = v1alpha1.NotUpdateSidecarSetStrategyType }), matched(old, old), protocol.PhaseNotUpdate, []string{}, 2},
		{"1 paused", strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) { s.Paused = true }), matched(old, updated), protocol.PhasePaused, []string{}, 1},
		{"1 paused with nothing to do", strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) { s.Paused = true }), matched(updated), protocol.PhaseComplete, []string{}, 0},
		{"2 canary alone, partition ignored", canary, labelled, protocol.PhaseProgressing, []string{"b"}, 1},
		{"2 not upgradable are left", unavailable(intstr.FromInt32(9)), matched(fixed, old), protocol.PhaseProgressing, []string{"b"}, 1},
		{"2 converging from the previous version waits and takes a slot", unavailable(intstr.FromInt32(2)), matched(previous, old, old), protocol.PhaseProgressing, []string{"b"}, 3},
		{"2 failed before may be upgraded without a slot", unavailable(intstr.FromInt32(1)), matched(broken, old), protocol.PhaseProgressing, []string{"a*"}, 2},
		{"4 number kept", held(intstr.FromInt32(2)), matched(old, old, old, updated), protocol.PhaseProgressing, []string{"a"}, 1},
		{"4 partition reached", held(intstr.FromInt32(3)), matched(old, old, old, updated), protocol.PhasePartitionReached, []string{}, 0},
		{"4 percent rounds up", held(intstr.FromString("30%")), matched(old, old, old, old), protocol.PhaseProgressing, []string{"a", "b"}, 2},
		{"4 small percent keeps one pod", held(intstr.FromString("1%")), matched(old, old), protocol.PhaseProgressing, []string{"a"}, 1},
		{"4 none however it is written", held(intstr.FromString("00%")), matched(old, old), protocol.PhaseProgressing, []string{"a", "b"}, 2},
		{"4 none by an older rule", held(intstr.FromString("-5%")), matched(old, old), protocol.PhaseProgressing, []string{"a", "b"}, 2},
		{"4 large percent upgrades one pod", held(intstr.FromString("99%")), matched(old, old), protocol.PhaseProgressing, []string{"a"}, 1},
		{"4 all kept", held(intstr.FromString("100%")), matched(old, old), protocol.PhasePartitionReached, []string{}, 0},
		{"4 pods that cannot be upgraded count as kept", held(intstr.FromInt32(1)), matched(fixed, old, old), protocol.PhaseProgressing, []string{"b", "c"}, 2},
		{"4 pods that cannot be upgraded are all kept", held(intstr.FromInt32(2)), matched(fixed, fixed, updated), protocol.PhasePartitionReached, []string{}, 0},
		{"4 more pods that cannot be upgraded than kept", held(intstr.FromInt32(1)), matched(fixed, fixed, updated), protocol.PhaseComplete, []string{}, 0},
		{"5 default is one", strategy(nil), matched(old, old), protocol.PhaseProgressing, []string{"a"}, 2},
		{"5 percent rounds up", unavailable(intstr.FromString("34%")), matched(old, old, old), protocol.PhaseProgressing, []string{"a", "b"}, 3},
		{"5 updated and not ready counts", unavailable(intstr.FromInt32(2)), matched(restart, old, old), protocol.PhaseProgressing, []string{"b"}, 2},
		{"5 without free slots waits", unavailable(intstr.FromInt32(1)), matched(restart, old), protocol.PhaseWaiting, []string{}, 1},
		{"5 not ready costs nothing", unavailable(intstr.FromInt32(1)), matched(oldDown, oldDown, old, old), protocol.PhaseProgressing, []string{"a*", "b*", "c"}, 4},
		{"5 not ready before its upgrade costs nothing after it", unavailable(intstr.FromInt32(1)), matched(deadWhen, old), protocol.PhaseProgressing, []string{"b"}, 1},
		{"5 with maxUnavailable 0 unavailable pods are upgraded", unavailable(intstr.FromInt32(0)), matched(oldDown, old), protocol.PhaseProgressing, []string{"a*"}, 2},
		{"last pod converges", strategy(nil), matched(updated, restart), protocol.PhaseWaiting, []string{}, 0},
		{"complete", strategy(nil), matched(updated, updated), protocol.PhaseComplete, []string{}, 0},
		{"nobody", strategy(nil), nil, protocol.PhaseComplete, []string{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := Next(c.set, c.pods, nil)
			require.NoError(t, err)
			assert.Equal(t, c.phase, plan.Phase)
			assert.Equal(t, c.chosen, chosen(plan))
			assert.Equal(t, c.remains, plan.Counts.Remaining)
		})
	}
}

// Pod a was created with the newest content, and is not ready. Pod a uses the only slot.
func TestSpec7_8_TheMessageNamesAPodThatUsesTheLastSlot(t *testing.T) {
	created := updated
	created.Ready, created.UpgradedInPlace, created.UpgradedToVersion = false, false, false
	plan, err := Next(strategy(nil), matched(created, old), nil)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseWaiting, plan.Phase)
	assert.Contains(t, plan.Message, "; waiting for pods such as d/a")
	plan, err = Next(unavailable(intstr.FromInt32(2)), matched(created, old), nil)
	require.NoError(t, err)
	assert.Empty(t, plan.Example)
}

func TestSpec7_2_PodsOfJobsEndByThemselves(t *testing.T) {
	fixed := old
	fixed.Upgradable, fixed.FalseConditionDue = false, true
	pods := matched(fixed, fixed, updated)
	pods[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "once", Controller: new(true)}}
	plan, err := Next(strategy(nil), pods, nil)
	require.NoError(t, err)
	assert.Equal(t, protocol.Counts{Matched: 3, Updated: 1, UpdatedReady: 1, Ready: 3, NotUpgradable: 1}, plan.Counts)
	assert.Equal(t, []protocol.PodReference{pods[1].Reference()}, plan.NotUpgradable)
	assert.Contains(t, plan.Message, "; 1 not upgradable in place, such as d/b; pods of Jobs that keep their version until their end: 1")
	assert.Len(t, plan.FalseConditions, 2)
}

func TestSpec7_3_BaseOrder(t *testing.T) {
	readyAt := func(at time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}}
		}
	}
	restarted := func(n int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: n}} }
	}
	// An ordinary init container ends before the containers start, so its restarts do not count.
	nativeRestarted := func(n int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "ends"}, {Name: "native", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "ends", RestartCount: 9}, {Name: "native", RestartCount: n}}
		}
	}
	created := func(at time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(at) }
	}
	phase := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Phase = phase }
	}
	ordered := []Pod{
		newPod("z-unscheduled", oldDown, phase(corev1.PodPending), func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		newPod("y-pending", oldDown, phase(corev1.PodPending)),
		newPod("x-unknown", oldDown, phase(corev1.PodUnknown)),
		newPod("w-not-ready", oldDown),
		newPod("v-ready-shortly", old, readyAt(noon.Add(time.Hour))),
		newPod("u-restarted", old, readyAt(noon), restarted(3)),
		newPod("t-restarted-native", old, readyAt(noon), nativeRestarted(2)),
		newPod("t-newer", old, readyAt(noon), created(noon.Add(time.Minute))),
		newPod("a-older", old, readyAt(noon)),
		newPod("b-older", old, readyAt(noon)),
	}
	var want []string
	for i := range ordered {
		want = append(want, ordered[i].Name)
	}
	for shift := range ordered {
		pods := append(append([]Pod{}, ordered[shift:]...), ordered[:shift]...)
		plan, err := Next(unavailable(intstr.FromInt32(9)), pods, nil)
		require.NoError(t, err)
		var got []string
		for _, pod := range plan.Pods {
			got = append(got, pod.Name)
		}
		assert.Equal(t, want, got)
	}
}

func TestRejectedPodsWaitUntilNoOtherPodIsLeft(t *testing.T) {
	rejected := map[protocol.PodReference]bool{{Namespace: "d", Name: "a", UID: "u-a"}: true}
	set := unavailable(intstr.FromInt32(9))
	plan, err := Next(set, matched(old, old, old), rejected)
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "c"}, chosen(plan))
	plan, err = Next(set, matched(old, updated, updated), rejected)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, chosen(plan))
}

func TestPlansAreBounded(t *testing.T) {
	var pods []Pod
	for i := range 2 * (MaxBatch + MaxQueued) {
		pods = append(pods, newPod(fmt.Sprintf("p%04d", i), old))
	}
	plan, err := Next(unavailable(intstr.FromString("100%")), pods, nil)
	require.NoError(t, err)
	assert.Len(t, plan.Pods, MaxBatch)
	assert.Len(t, plan.Queued, MaxQueued, "maxUnavailable above the size of a batch has queued pods, too")
	assert.NotContains(t, plan.Queued, plan.Pods[0])
	assert.Equal(t, "0 of 2000 pods updated, 0 of them ready; 2000 to go, 0 unavailable of 2000 allowed", plan.Message)
	refill := plan.Refill(slices.Concat(plan.Pods, plan.Queued), nil, 0)
	assert.Len(t, refill.Now, MaxBatch+MaxQueued)
}

func TestSpec7_5_QueuedPodsFollowInOrderAndNeverExceedMaxUnavailable(t *testing.T) {
	set := unavailable(intstr.FromInt32(2))
	set.Spec.UpdateStrategy.Partition = ptr(intstr.FromInt32(1))
	pods := matched(old, old, old, old, old)
	plan, err := Next(set, pods, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, chosen(plan))
	assert.Equal(t, []string{"c", "d"}, chosen(Plan{Pods: plan.Queued}), "one is kept by the partition")
	plan, err = Next(set, matched(old, old, old, old, old), map[protocol.PodReference]bool{pods[0].Reference(): true})
	require.NoError(t, err)
	assert.Equal(t, []string{"d", "e"}, chosen(Plan{Pods: plan.Queued}), "rejected pods are not queued while others are left")
}

func TestARejectedPodDoesNotWaitBehindAPodThatCannotBeUpgraded(t *testing.T) {
	pods := matched(oldDown, previous)
	rejected := map[protocol.PodReference]bool{pods[0].Reference(): true}
	plan, err := Next(unavailable(intstr.FromInt32(3)), pods, rejected)
	require.NoError(t, err)
	assert.Equal(t, []string{"a*"}, chosen(plan), "b waits for its previous upgrade")
	plan, err = Next(unavailable(intstr.FromInt32(1)), matched(oldDown, restart, old), rejected)
	require.NoError(t, err)
	assert.Equal(t, []string{"a*"}, chosen(plan), "c waits for a slot")
}

func TestSpec7_5_RefillCountsTheSlotsAtTheWrite(t *testing.T) {
	names := func(pods []protocol.SelectedPod) []string { return chosen(Plan{Pods: pods}) }
	set := unavailable(intstr.FromInt32(2))
	whole, err := Next(set, matched(old, old, old, old), nil)
	require.NoError(t, err)
	left := append(whole.Pods, whole.Queued...)
	for _, c := range []struct {
		name      string
		states    []podstate.State
		unseen    int
		now, left []string
		others    bool
	}{
		{"as planned", []podstate.State{old, old, old, old}, 0, []string{"a", "b"}, []string{"c", "d"}, false},
		{"an unobserved write takes a slot", []podstate.State{old, old, old, old}, 1, []string{"a"}, []string{"b", "c", "d"}, false},
		{"others crashed meanwhile", []podstate.State{old, old, old, restart}, 0, []string{"a"}, []string{"b", "c", "d"}, false},
		{"no slots", []podstate.State{old, old, restart, restart}, 0, []string{}, []string{"a", "b", "c", "d"}, false},
		{"not ready any more costs nothing", []podstate.State{oldDown, old, old, restart}, 0, []string{"a*", "b"}, []string{"c", "d"}, false},
		{"its previous upgrade continues", []podstate.State{previous, old, old, old}, 0, []string{"b"}, []string{"a", "c", "d"}, false},
		{"only other pods may be upgraded", []podstate.State{updated, updated, updated, updated, old}, 0, []string{}, []string{"a", "b", "c", "d"}, true},
		{"others, but a write is not seen", []podstate.State{updated, updated, updated, updated, old}, 1, []string{}, []string{"a", "b", "c", "d"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := Next(set, matched(c.states...), nil)
			require.NoError(t, err)
			refill := plan.Refill(left, nil, c.unseen)
			assert.Equal(t, c.now, names(refill.Now))
			assert.Len(t, refill.Left, len(c.left))
			for i, pod := range refill.Left {
				assert.Equal(t, c.left[i], pod.Name)
			}
			assert.Equal(t, c.others, refill.OnlyOthers)
		})
	}
}

func TestSpec7_4_WhichPartitionsKeepPods(t *testing.T) {
	for partition, want := range map[intstr.IntOrString]bool{
		intstr.FromInt32(0): false, intstr.FromString("0%"): false, intstr.FromString("00%"): false, intstr.FromString("-5%"): false,
		intstr.FromInt32(1): true, intstr.FromString("1%"): true, intstr.FromString("100%"): true, intstr.FromString("many"): true,
	} {
		assert.Equal(t, want, KeepsPods(&v1alpha1.SidecarSetUpdateStrategy{Partition: &partition}), partition.String())
	}
	assert.False(t, KeepsPods(&v1alpha1.SidecarSetUpdateStrategy{}))
}

func TestSpec7_4_RefillHeedsThePartition(t *testing.T) {
	whole, err := Next(unavailable(intstr.FromInt32(4)), matched(old, old, old, old), nil)
	require.NoError(t, err)
	set := unavailable(intstr.FromInt32(4))
	set.Spec.UpdateStrategy.Partition = ptr(intstr.FromInt32(3))
	plan, err := Next(set, matched(oldDown, oldDown, old, old), nil)
	require.NoError(t, err)
	assert.Len(t, plan.Refill(whole.Pods, nil, 0).Now, 1)
	assert.Empty(t, plan.Refill(whole.Pods, nil, 1).Now)
}

// The partition allows the upgrade of one of three pods. The plan selects the rejected pod that is not in
// backoff.
func TestSpec7_8_APartitionKeepsNoRejectedPodFromARetry(t *testing.T) {
	for due := range 3 {
		pods := matched(old, old, old)
		rejected := map[protocol.PodReference]bool{}
		for i := range pods {
			rejected[pods[i].Reference()] = true
			pods[i].InBackoff = i != due
		}
		set := unavailable(intstr.FromInt32(1))
		set.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(2))
		plan, err := Next(set, pods, rejected)
		require.NoError(t, err)
		assert.Equal(t, []string{pods[due].Name}, chosen(plan))
	}
}
