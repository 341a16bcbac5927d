package stage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func quarantined(hash string) *protocol.Stage {
	return &protocol.Stage{
		Generation: 4, Hash: hash, Policy: "a", Steps: 2, Step: &protocol.Step{UpTo: intstr.FromInt32(1), MaxPerOwner: 1},
		Quarantine: &protocol.Quarantine{Hash: hash, Revision: "edge-old", Reason: "bad", Since: now},
	}
}

func TestSpec11_12_AQuarantineOutlivesTheGenerationOfItsContent(t *testing.T) {
	set := edge()
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "bad"}
	policies := []outriggerv1.RolloutPolicy{policy("a", 1, nil, upTo(intstr.FromInt32(3)))}
	s := quarantined("bad")
	same, err := Resolve(set, s, nil)
	require.NoError(t, err)
	assert.Same(t, s, same)
	assert.NotNil(t, RollsBack(s, 4))

	set.Generation = 5
	assert.Nil(t, RollsBack(s, 5), "the content is not compared yet")
	assert.False(t, Decided(set, s))
	next, err := Resolve(set, s, policies)
	require.NoError(t, err)
	assert.Equal(t, s.Quarantine, RollsBack(next, 5))
	assert.EqualValues(t, 4, s.Generation, "the stage of the run is not changed")

	set.Annotations[v1alpha1.HashAnnotation] = "better"
	next, err = Resolve(set, s, policies)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Stage{Generation: 5, Hash: "better", Policy: "a", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromInt32(3)}}, next)
	next, err = Resolve(set, s, nil)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Stage{Generation: 5, Hash: "better", Done: true}, next)
}

func TestSpec11_12_AnAbortOutlivesTheGenerationOfItsContent(t *testing.T) {
	set := edge()
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "bad"}
	set.Generation = 5
	aborted := &protocol.Approval{By: "ann"}
	policies := []outriggerv1.RolloutPolicy{policy("a", 1, nil, upTo(intstr.FromInt32(3)))}
	begun := &protocol.Stage{Generation: 4, Hash: "bad", Policy: "a", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromInt32(1)}, Aborted: aborted}
	next, err := Resolve(set, begun, policies)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Stage{Generation: 5, Hash: "bad", Policy: "a", Steps: 1, Step: begun.Step, Aborted: aborted}, next)
	invalid := policy("b", 1, nil)
	invalid.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}

	between := &protocol.Stage{Generation: 4, Hash: "bad", Aborted: aborted}
	next, err = Resolve(set, between, policies)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Stage{Generation: 5, Hash: "bad", Policy: "a", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromInt32(3)}, Aborted: aborted}, next)

	retried := &protocol.Stage{Generation: 4, Hash: "bad", Retried: now}
	next, err = Resolve(set, retried, nil)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Stage{Generation: 5, Hash: "bad", Done: true, Retried: now}, next)
	next, err = Resolve(set, between, []outriggerv1.RolloutPolicy{invalid})
	require.NoError(t, err)
	assert.Equal(t, &protocol.Stage{Generation: 5, Hash: "bad", Aborted: aborted}, next)
	for _, other := range []string{"better", ""} {
		begun.Hash = other
		next, err = Resolve(set, begun, policies)
		require.NoError(t, err)
		assert.Nil(t, next.Aborted)
	}
}

// After a restore of etcd, an edit of the SidecarSet creates a generation that already existed with other
// content.
func TestSpec11_12_AStageOfOtherContentWithTheSameGenerationEnds(t *testing.T) {
	set := edge()
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "better"}
	s := &protocol.Stage{Generation: 4, Hash: "bad", Policy: "a", Steps: 2, Index: 1, Step: &protocol.Step{UpTo: intstr.FromInt32(1)}, Tolerated: 3}
	assert.False(t, Decided(set, s))
	next, err := Resolve(set, s, nil)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Stage{Generation: 4, Hash: "better", Done: true}, next)
	s.Hash = "" // Older workers do not write the hash.
	assert.True(t, Decided(set, s))
}

// During a rollback, the plan reads the SidecarSet with the content of the former revision. After a restore of
// etcd, the generation of the rollback may have other content.
func TestSpec11_12_ARollbackKeepsItsQuarantine(t *testing.T) {
	set, s := edge(), quarantined("bad")
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "better"}
	assert.False(t, Decided(set, s))
	other, err := Resolve(set, s, nil)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Stage{Generation: 4, Hash: "better", Done: true}, other)
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "good"}
	set.Status.LatestRevision, set.Status.ObservedGeneration = "edge-old", set.Generation
	assert.True(t, Decided(set, s))
	same, err := Resolve(set, s, nil)
	require.NoError(t, err)
	assert.Same(t, s, same)
}

func TestSpec11_12_StatusKeepsTheQuarantineForTheNextRun(t *testing.T) {
	set := edge()
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "bad"}
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 4}
	assert.Nil(t, QuarantineOf(set))
	assert.Nil(t, ForStart(set))
	ToStatus(set, quarantined("bad"))
	assert.Equal(t, quarantined("bad"), OfStatus(set))
	assert.Equal(t, quarantined("bad"), ForStart(set))

	set.Generation = 5
	assert.Nil(t, OfStatus(set))
	carried := ForStart(set)
	assert.EqualValues(t, 4, carried.Generation)
	assert.Equal(t, quarantined("bad"), carried, "with the limits of the step")
	set.Annotations[v1alpha1.HashAnnotation] = "better"
	assert.Nil(t, QuarantineOf(set))
	assert.Nil(t, ForStart(set))
	set.Generation = 4
	ToStatus(set, &protocol.Stage{Generation: 4, Policy: "a", Steps: 2})
	assert.Nil(t, set.Status.Rollout.Quarantine, "a retry ends the quarantine")
}

func TestSpec11_12_ARollbackIgnoresStepsWindowsAndFreezesThatAllowIt(t *testing.T) {
	set, s := edge(), quarantined("bad")
	s.Step.MaxFailed, s.Step.Windows = new(intstr.FromInt32(0)), []protocol.Window{{Schedule: "0 0 1 1 *", Duration: time.Minute}}
	allowed, err := Allowed(s, 3, 7)
	require.NoError(t, err)
	assert.Equal(t, 7, allowed)
	_, limited, err := MaxFailed(s, 10)
	require.NoError(t, err)
	assert.False(t, limited)
	closed, _, err := Closed(s, now)
	require.NoError(t, err)
	assert.Empty(t, closed)
	assert.True(t, LimitsUnavailable(s), "the limit per owner stays")

	open, strict := freeze("open", nil, 0), freeze("strict", nil, 0)
	open.Spec.AllowRollback, strict.Spec.AllowRollback = new(true), new(false)
	freezes := []outriggerv1.RolloutFreeze{open, freeze("default", nil, 0)}
	assert.Nil(t, FreezeFor(set, s, freezes, now))
	assert.Equal(t, "default", FreezeFor(set, nil, freezes, now).Name)
	assert.Equal(t, "strict", FreezeFor(set, s, append(freezes, strict), now).Name)
	assert.Len(t, freezes, 2)
}

func TestSpec11_12_NewPodsGetTheRevisionOfTheRollback(t *testing.T) {
	set := edge()
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "bad"}
	set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 4}
	ToStatus(set, quarantined("bad"))
	set.Generation = 9
	require.NotNil(t, Former(set))
	assert.Equal(t, "edge-old", Former(set).Revision)
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{Policy: v1alpha1.PartialSidecarSetInjectRevisionPolicy}
	assert.NotNil(t, Former(set), "some new pods may get no pinned revision")
}
