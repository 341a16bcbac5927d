package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// lost is the state of an old pod whose node does not respond.
var lost = podstate.State{Complete: true, Upgradable: true, Consistent: true, NodeLost: true}

// If pods on lost nodes were upgraded, all pods of a zone would restart at once when the zone responds again.
func TestSpec7_2_PodsOnLostNodesWaitAndStopNoOther(t *testing.T) {
	population := matched(lost, old, lost, old, oldDown)
	plan, err := Next(unavailable(intstr.FromInt32(1)), population, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"e*", "b"}, chosen(plan), "a pod that is not ready takes no slot")
	assert.Contains(t, plan.Message, "; 2 on nodes that do not respond, such as d/a")

	all := []protocol.SelectedPod{{PodReference: population[0].Reference()}, {PodReference: population[3].Reference()}}
	refill := plan.Refill(all, nil, 0)
	assert.Equal(t, []string{"d"}, chosen(Plan{Pods: refill.Now}))
	assert.Empty(t, refill.SlotWanted)

	plan, err = Next(unavailable(intstr.FromInt32(1)), matched(lost, updated), nil)
	require.NoError(t, err)
	assert.Empty(t, plan.Pods)
	assert.Equal(t, protocol.PhaseWaiting, plan.Phase)
	assert.Equal(t, 1, plan.Counts.Remaining)
}

func TestSpec7_2_APartitionKeepsPodsOnLostNodesFirst(t *testing.T) {
	set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.Partition, s.MaxUnavailable = ptr(intstr.FromInt32(2)), ptr(intstr.FromInt32(4))
	})
	plan, err := Next(set, matched(lost, old, lost, old), nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "d"}, chosen(plan))
	plan, err = Next(set, matched(lost, updated, lost, updated), nil)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhasePartitionReached, plan.Phase)
}

// A rejected write of another pod does not change which pods the partition keeps.
func TestSpec7_2_AmongPodsOfOnePriorityPodsOnLostNodesAreLast(t *testing.T) {
	set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.Partition, s.MaxUnavailable = ptr(intstr.FromInt32(2)), ptr(intstr.FromInt32(4))
		s.PriorityStrategy = &v1alpha1.UpdatePriorityStrategy{WeightPriority: []v1alpha1.UpdatePriorityWeightTerm{
			{Weight: 1, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}},
		}}
	})
	population := matched(lost, old, old, old)
	for _, i := range []int{0, 1} {
		population[i].Labels = map[string]string{"canary": "yes"}
	}
	for _, rejected := range []map[protocol.PodReference]bool{nil, {population[3].Reference(): true}} {
		plan, err := Next(set, population, rejected)
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, chosen(plan))
	}
}

func TestSpec7_2_AScatterDoesNotSelectPodsOnLostNodes(t *testing.T) {
	set := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) {
		s.Partition, s.MaxUnavailable = ptr(intstr.FromInt32(2)), ptr(intstr.FromInt32(4))
		s.ScatterStrategy = v1alpha1.UpdateScatterStrategy{{Key: "zone", Value: "z"}}
	})
	population := matched(lost, old, lost, old)
	for _, i := range []int{0, 2} {
		population[i].Labels = map[string]string{"zone": "z"}
	}
	plan, err := Next(set, population, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "d"}, chosen(plan))
}

func TestSpec11_12_ARollbackNamesPodsOnLostNodes(t *testing.T) {
	set := unavailable(intstr.FromInt32(1))
	set.Generation = 2
	population := matched(lost)
	population[0].Annotations = map[string]string{v1alpha1.HashAnnotation: `{"s":{"hash":"bad"}}`}
	current := &protocol.Stage{Generation: 2, Quarantine: &protocol.Quarantine{Hash: "bad", Revision: "s-good", Reason: "aborted"}}
	plan, err := NextInStage(set, population, nil, current)
	require.NoError(t, err)
	assert.Empty(t, plan.Pods)
	assert.Equal(t, "rolling back to revision s-good: 1 to go, 0 unavailable of 1 allowed; 1 on nodes that do not respond, such as d/a; aborted", plan.Message)
}

// A lost node must not cause a rollback.
func TestSpec11_6_TheProgressDeadlineDoesNotApplyToPodsOnLostNodes(t *testing.T) {
	set := unavailable(intstr.FromInt32(1))
	current := &protocol.Stage{Step: &protocol.Step{ProgressDeadline: time.Minute}}
	plan, err := NextInStage(set, matched(lost, updated), nil, current)
	require.NoError(t, err)
	assert.False(t, ProgressDue(set, &plan, current))
}
