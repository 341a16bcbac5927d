package policies

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSpec8_8_OnlyEvictionsThatContinueAreKnown(t *testing.T) {
	sets := []v1alpha1.SidecarSet{{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}, {ObjectMeta: metav1.ObjectMeta{Name: "mesh"}}}
	policies, read := []outriggerv1.RolloutPolicy{*evicting()}, map[types.UID][]string{"p1": nil}
	for name, c := range map[string]struct {
		status *outriggerv1.EvictionStatus
		want   map[string]bool
	}{
		"not begun": {nil, map[string]bool{"logs": true, "mesh": true}},
		"paused":    {&outriggerv1.EvictionStatus{Paused: true}, map[string]bool{}},
		"failed":    {&outriggerv1.EvictionStatus{Failed: []outriggerv1.FailedEviction{{SidecarSet: "logs"}}}, map[string]bool{"mesh": true}},
	} {
		got, err := evictingSets(sets, policies, []outriggerv1.RolloutPolicyStatus{{Evictions: c.status}}, read)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, name)
	}
	got, err := evictingSets(sets, policies, make([]outriggerv1.RolloutPolicyStatus, 1), map[types.UID][]string{"p1": {"mesh"}})
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{"logs": true}, got, "the outdated pods of the other SidecarSet are never evicted")
	policies[0].Spec.NotUpgradable.Action = outriggerv1.LeaveNotUpgradable
	got, err = evictingSets(sets, policies, make([]outriggerv1.RolloutPolicyStatus, 1), read)
	require.NoError(t, err)
	assert.Empty(t, got)
}

func TestAChangeOfTheEvictionsIsAnEvent(t *testing.T) {
	changes := make(chan event.GenericEvent, 1)
	e := NewEvicting(changes)
	_, known := e.Evicts("logs")
	assert.False(t, known)
	for _, c := range []struct {
		sets           map[string]bool
		changed, known bool
	}{
		{map[string]bool{"logs": true}, true, true}, {map[string]bool{"logs": true}, false, true}, {map[string]bool{}, true, true},
		{map[string]bool{"logs": false}, true, false},
	} {
		e.store(c.sets)
		evicts, known := e.Evicts("logs")
		assert.Equal(t, c.known, known)
		assert.Equal(t, c.sets["logs"], evicts)
		assert.Len(t, changes, map[bool]int{true: 1}[c.changed])
		for len(changes) > 0 {
			<-changes
		}
	}
}
