package rollout

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/podstate"
)

func owned(name, owner string, state podstate.State) Pod {
	return newPod(name, state, func(pod *corev1.Pod) {
		if owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: new(true)}}
		}
	})
}

func onePerOwner(upTo intstr.IntOrString) *protocol.Stage {
	return &protocol.Stage{Policy: "p", Steps: 1, Step: &protocol.Step{UpTo: upTo, MaxPerOwner: 1}}
}

func TestSpec11_9_OnePodOfEachOwner(t *testing.T) {
	all := intstr.FromString("100%")
	for _, c := range []struct {
		name   string
		upTo   intstr.IntOrString
		pods   []Pod
		chosen []string
		queued []string
	}{
		{"one of each owner", all, []Pod{owned("a", "x", old), owned("b", "x", old), owned("c", "y", old)}, []string{"a", "c"}, []string{"b"}},
		{"an upgrade in progress takes the slot", all, []Pod{owned("a", "x", restart), owned("b", "x", old), owned("c", "y", old)}, []string{"c"}, []string{"b"}},
		{"an updated pod that is ready takes none", all, []Pod{owned("a", "x", updated), owned("b", "x", old)}, []string{"b"}, nil},
		{"a pod that is not ready needs no slot", all, []Pod{owned("a", "x", oldDown), owned("b", "x", old), owned("c", "x", old)}, []string{"a*", "b"}, []string{"c"}},
		{"pods without an owner have no limit", all, []Pod{owned("a", "", old), owned("b", "", old)}, []string{"a", "b"}, nil},
		{"a full owner does not use up the step", intstr.FromInt32(2), []Pod{owned("a", "x", restart), owned("b", "x", old), owned("c", "y", old)}, []string{"c"}, []string{"b"}},
		{"pods without a slot do not use up the step", intstr.FromInt32(3), []Pod{owned("a", "x", old), owned("b", "x", old), owned("c", "x", old), owned("d", "y", old)}, []string{"a", "d"}, []string{"b", "c"}},
		{"the step is not exceeded", intstr.FromInt32(1), []Pod{owned("a", "x", old), owned("b", "y", old), owned("c", "z", old)}, []string{"a"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := NextInStage(unavailable(intstr.FromInt32(9)), c.pods, nil, onePerOwner(c.upTo))
			require.NoError(t, err)
			assert.Equal(t, c.chosen, chosen(plan))
			var queued []string
			for _, pod := range plan.Queued {
				queued = append(queued, pod.Name)
			}
			assert.Equal(t, c.queued, queued)
		})
	}
}

// Because of the partition, the rollout upgrades only two of four pods. With or without a policy, these are the
// two pods that wait for their previous upgrades, so no other pod is upgraded.
func TestSpec7_4_WaitingPodsKeepTheirPlacesUnderAPolicy(t *testing.T) {
	set := unavailable(intstr.FromInt32(9))
	set.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(2))
	pods := []Pod{owned("a", "x", previous), owned("b", "x", previous), owned("c", "y", old), owned("d", "z", old)}
	for name, current := range map[string]*protocol.Stage{"without": nil, "with": onePerOwner(intstr.FromString("100%"))} {
		plan, err := NextInStage(set, pods, nil, current)
		require.NoError(t, err)
		assert.Equal(t, 2, plan.Counts.Remaining)
		assert.Empty(t, plan.Pods, name)
		assert.Empty(t, plan.Queued, name)
		assert.Equal(t, protocol.PhaseWaiting, plan.Phase, name)
	}
}

func TestSpec11_9_PodsOfOtherOwnersAreQueuedFirst(t *testing.T) {
	pods := []Pod{owned("a", "x", restart), owned("z", "y", old)}
	for i := range 2 * queuedPerSlot {
		pods = append(pods, owned(fmt.Sprintf("b%02d", i), "x", old))
	}
	plan, err := NextInStage(unavailable(intstr.FromInt32(1)), pods, nil, onePerOwner(intstr.FromString("100%")))
	require.NoError(t, err)
	assert.Empty(t, plan.Pods)
	require.Len(t, plan.Queued, queuedPerSlot)
	assert.Equal(t, "z", plan.Queued[0].Name)
	assert.Equal(t, "b00", plan.Queued[1].Name)
}

func TestSpec11_9_ARefillCountsTheWritesOfTheBatch(t *testing.T) {
	pods := []Pod{owned("a", "x", old), owned("b", "x", old), owned("c", "y", old), owned("d", "y", old)}
	plan, err := NextInStage(unavailable(intstr.FromInt32(9)), pods, nil, onePerOwner(intstr.FromString("100%")))
	require.NoError(t, err)
	var left []protocol.SelectedPod
	for _, i := range []int{1, 2, 3} {
		left = append(left, protocol.SelectedPod{PodReference: pods[i].Reference()})
	}
	// The batch has written a, which the cache does not show yet.
	refill := plan.Refill(left, map[protocol.PodReference]bool{pods[0].Reference(): true}, 1)
	var now []string
	for _, pod := range refill.Now {
		now = append(now, pod.Name)
	}
	assert.Equal(t, []string{"c"}, now)
	assert.Empty(t, refill.SlotWanted, "a rejected pod passes its slot to no pod of another owner")
	assert.Len(t, refill.Left, 2)
}
