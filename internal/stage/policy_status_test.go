package stage

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSpec11_1_StatusListsTheSidecarSetsOfEachPolicy(t *testing.T) {
	sets := []v1alpha1.SidecarSet{*edge(), *edge(), *edge()}
	sets[0].Name, sets[1].Name, sets[2].Name = "c", "b", "a"
	sets[1].Labels = nil
	all, tier, none := policy("all", 9, nil), policy("tier", 1, map[string]string{"tier": "edge"}), policy("none", 1, map[string]string{"tier": "core"})
	all.Generation, tier.Generation = 3, 2
	policies := []outriggerv1.RolloutPolicy{all, tier, none}
	statuses, err := Statuses(sets, policies)
	require.NoError(t, err)
	assert.Equal(t, []outriggerv1.RolloutPolicyStatus{
		{ObservedGeneration: 3, SidecarSets: 1, Names: []string{"b"}},
		{ObservedGeneration: 2, SidecarSets: 2, Names: []string{"a", "c"}},
		{},
	}, statuses)

	policies[1].DeletionTimestamp = new(metav1.Now())
	statuses, err = Statuses(sets, policies)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, statuses[0].Names, "a deleted policy applies to none")
	assert.Zero(t, statuses[1].SidecarSets)

	policies[2].Spec.Selector.MatchLabels = map[string]string{"tier": "not a label value"}
	_, err = Statuses(sets, policies)
	require.ErrorContains(t, err, "RolloutPolicy none: spec.selector")
}

func TestSpec11_1_StatusListsAtMost100Names(t *testing.T) {
	sets := make([]v1alpha1.SidecarSet, 150)
	for i := range sets {
		sets[i].Name = fmt.Sprintf("set-%03d", 149-i)
	}
	statuses, err := Statuses(sets, []outriggerv1.RolloutPolicy{policy("all", 1, nil)})
	require.NoError(t, err)
	assert.EqualValues(t, 150, statuses[0].SidecarSets)
	require.Len(t, statuses[0].Names, 100)
	assert.Equal(t, []string{"set-000", "set-099"}, []string{statuses[0].Names[0], statuses[0].Names[99]})
}

func TestEqualStatusesAreNotWritten(t *testing.T) {
	one := outriggerv1.RolloutPolicyStatus{ObservedGeneration: 1, SidecarSets: 1, Names: []string{"a"}}
	same := *one.DeepCopy()
	assert.True(t, SameStatus(&one, &same))
	assert.True(t, SameStatus(&outriggerv1.RolloutPolicyStatus{Names: []string{}}, &outriggerv1.RolloutPolicyStatus{}))
	for _, other := range []outriggerv1.RolloutPolicyStatus{
		{ObservedGeneration: 2, SidecarSets: 1, Names: []string{"a"}}, {ObservedGeneration: 1, SidecarSets: 2, Names: []string{"a"}}, {ObservedGeneration: 1, SidecarSets: 1, Names: []string{"b"}},
	} {
		assert.False(t, SameStatus(&one, &other))
	}
}
