package rollout

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// zoned is a cluster whose nodes have the name of their zone. Node none has no zone.
var zoned = Cluster{Domain: func(node string) string {
	if node == "none" {
		return ""
	}
	return node
}}

func inZone(name, zone string, state podstate.State) Pod {
	return newPod(name, state, func(pod *corev1.Pod) { pod.Spec.NodeName = zone })
}

func zonesAtOnce(n int, upTo intstr.IntOrString) *protocol.Stage {
	return &protocol.Stage{Policy: "p", Steps: 1, Step: &protocol.Step{UpTo: upTo, Domains: &protocol.Domains{TopologyKey: "zone", MaxUnavailable: n}}}
}

func TestSpec11_10_OneDomainAtATime(t *testing.T) {
	all := intstr.FromString("100%")
	for _, c := range []struct {
		name   string
		zones  int
		upTo   intstr.IntOrString
		pods   []Pod
		chosen []string
		queued []string
	}{
		{"one domain", 1, all, []Pod{inZone("a", "x", old), inZone("b", "y", old), inZone("c", "x", old)}, []string{"a", "c"}, []string{"b"}},
		{"two domains", 2, all, []Pod{inZone("a", "x", old), inZone("b", "y", old), inZone("c", "z", old)}, []string{"a", "b"}, []string{"c"}},
		{"the domain of an upgrade in progress", 1, all, []Pod{inZone("a", "x", old), inZone("b", "y", restart), inZone("c", "y", old)}, []string{"c"}, []string{"a"}},
		{"a domain that has begun ends first", 1, all, []Pod{inZone("a", "x", old), inZone("b", "y", updated), inZone("c", "y", old)}, []string{"c"}, []string{"a"}},
		{"a domain without further pods has ended", 1, all, []Pod{inZone("a", "x", old), inZone("b", "y", updated), inZone("c", "z", old)}, []string{"a"}, []string{"c"}},
		{"a pod that is not ready needs no slot", 1, all, []Pod{inZone("a", "x", old), inZone("b", "y", oldDown), inZone("c", "z", old)}, []string{"a", "b*"}, []string{"c"}},
		{"pods without a domain are not limited", 1, all, []Pod{inZone("a", "x", old), inZone("b", "none", old), inZone("c", "none", old)}, []string{"a", "b", "c"}, nil},
		{"a domain that is not in progress does not use up the step", 1, intstr.FromInt32(3), []Pod{inZone("a", "x", restart), inZone("b", "y", old), inZone("c", "x", old), inZone("d", "x", old)}, []string{"c", "d"}, nil},
		{"more domains are unavailable than allowed", 1, all, []Pod{inZone("a", "x", restart), inZone("b", "y", restart), inZone("c", "y", old), inZone("d", "z", old)}, []string{}, []string{"c", "d"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := NextInCluster(unavailable(intstr.FromInt32(9)), c.pods, nil, zonesAtOnce(c.zones, c.upTo), zoned)
			require.NoError(t, err)
			assert.ElementsMatch(t, c.chosen, chosen(plan))
			var queued []string
			for _, pod := range plan.Queued {
				queued = append(queued, pod.Name)
			}
			assert.Equal(t, c.queued, queued)
		})
	}
}

// The partition keeps the pod on the lost node at the old version, and not a pod of a later domain.
func TestSpec7_2_PodsOnLostNodesAreLastAlsoWithDomains(t *testing.T) {
	set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.Partition, s.MaxUnavailable = ptr(intstr.FromInt32(1)), ptr(intstr.FromInt32(9))
	})
	pods := []Pod{inZone("a", "x", old), inZone("b", "x", lost), inZone("c", "y", old), inZone("d", "y", old)}
	plan, err := NextInCluster(set, pods, nil, zonesAtOnce(2, intstr.FromString("100%")), zoned)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"a", "c", "d"}, chosen(plan))
}

func TestSpec11_10_ThePlanNamesTheDomainThatItWaitsFor(t *testing.T) {
	pods := []Pod{inZone("a", "x", restart), inZone("b", "y", old)}
	plan, err := NextInCluster(unavailable(intstr.FromInt32(9)), pods, nil, zonesAtOnce(1, intstr.FromString("100%")), zoned)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseWaiting, plan.Phase)
	assert.Equal(t, "1 of 2 pods updated, 0 of them ready; 1 to go, 1 unavailable of 9 allowed; waiting for pods such as d/a; d/b waits for the pods of x (maxUnavailableDomains 1)", plan.Message)
	// maxUnavailable has no slot, so the message does not name the domain.
	plan, err = NextInCluster(unavailable(intstr.FromInt32(1)), pods, nil, zonesAtOnce(1, intstr.FromString("100%")), zoned)
	require.NoError(t, err)
	assert.NotContains(t, plan.Message, "waits for")
}

func TestSpec11_10_ARejectedPodDoesNotKeepItsDomainInProgress(t *testing.T) {
	pods := []Pod{inZone("a", "x", updated), inZone("b", "x", old), inZone("c", "y", old)}
	rejected := map[protocol.PodReference]bool{pods[1].Reference(): true}
	plan, err := NextInCluster(unavailable(intstr.FromInt32(9)), pods, rejected, zonesAtOnce(1, intstr.FromString("100%")), zoned)
	require.NoError(t, err)
	assert.Equal(t, []string{"c"}, chosen(plan))
}

func TestSpec11_10_ARefillCountsTheWritesOfTheBatch(t *testing.T) {
	pods := []Pod{inZone("a", "x", old), inZone("b", "y", old), inZone("c", "x", old)}
	plan, err := NextInCluster(unavailable(intstr.FromInt32(9)), pods, nil, zonesAtOnce(1, intstr.FromString("100%")), zoned)
	require.NoError(t, err)
	left := []protocol.SelectedPod{{PodReference: pods[1].Reference()}, {PodReference: pods[2].Reference()}}
	for written, now := range map[bool]string{true: "c", false: "b"} {
		refill := plan.Refill(left, map[protocol.PodReference]bool{pods[0].Reference(): written}, 1)
		require.Len(t, refill.Now, 1)
		assert.Equal(t, now, refill.Now[0].Name, "a was written: %t", written)
	}
}

func TestSpec11_10_ADomainEndsBeforeTheNextBegins(t *testing.T) {
	var pods []Pod
	for i := range 30 {
		pods = append(pods, inZone(fmt.Sprintf("p%02d", i), fmt.Sprintf("z-%d", i%3), old))
	}
	changes, last := 0, ""
	for range pods {
		plan, err := NextInCluster(unavailable(intstr.FromInt32(1)), pods, nil, zonesAtOnce(1, intstr.FromString("100%")), zoned)
		require.NoError(t, err)
		require.Len(t, plan.Pods, 1)
		for i := range pods {
			if pods[i].Reference() != plan.Pods[0].PodReference {
				continue
			}
			pods[i].State = updated
			if zone := pods[i].Spec.NodeName; zone != last {
				changes, last = changes+1, zone
			}
		}
	}
	assert.Equal(t, 3, changes)
}
