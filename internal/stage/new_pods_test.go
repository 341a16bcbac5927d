package stage

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
)

// inStage returns a SidecarSet whose status records a stage of a generation.
func inStage(generation int64, s *protocol.Stage) *v1alpha1.SidecarSet {
	set := edge()
	set.Status.MatchedPods = 60
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: generation}
	if s != nil {
		ToStatus(set, s)
	}
	return set
}

func TestSpec11_5_ShareOfNewPodsThatGetTheCurrentContent(t *testing.T) {
	percent, number := intstr.FromString("5%"), intstr.FromInt32(3)
	step := func(upTo intstr.IntOrString) *protocol.Stage {
		return &protocol.Stage{Policy: "a", Steps: 2, Step: &protocol.Step{UpTo: upTo}}
	}
	steps := []outriggerv1.RolloutPolicy{policy("a", 1, nil, upTo(percent), upTo(intstr.FromString("50%")))}
	other := []outriggerv1.RolloutPolicy{policy("a", 1, map[string]string{"tier": "core"}, upTo(percent))}
	unreached := inStage(4, step(number))
	unreached.Status.MatchedPods = 0
	for _, c := range []struct {
		name     string
		set      *v1alpha1.SidecarSet
		policies []outriggerv1.RolloutPolicy
		share    inject.Share
	}{
		{"no policy", inStage(4, nil), nil, inject.AllPods()},
		{"a policy of other SidecarSets", inStage(4, nil), other, inject.AllPods()},
		{"a policy without steps", inStage(4, nil), []outriggerv1.RolloutPolicy{policy("a", 1, nil)}, inject.AllPods()},
		{"no rollout is recorded", edge(), steps, inject.Share{}},
		{"the recorded rollout is of an earlier generation", inStage(3, step(percent)), steps, inject.Share{}},
		{"all steps of an earlier generation have ended", inStage(3, &protocol.Stage{Policy: "a", Steps: 2, Index: 1, Done: true}), steps, inject.Share{}},
		{"the first step is not recorded", inStage(4, nil), steps, inject.Share{}},
		{"a percentage", inStage(4, step(percent)), steps, inject.Share{Part: 5, Of: 100}},
		{"a number of the matched pods", inStage(4, step(number)), steps, inject.Share{Part: 3, Of: 60}},
		{"a number without matched pods", unreached, steps, inject.Share{}},
		{"none", inStage(4, step(intstr.FromString("0%"))), steps, inject.Share{Part: 0, Of: 100}},
		{"the step stays although its policy is gone", inStage(4, step(percent)), nil, inject.Share{Part: 5, Of: 100}},
		{"between two steps", inStage(4, &protocol.Stage{Policy: "a", Steps: 2, Index: 1}), steps, inject.Share{Part: 5, Of: 100}},
		{"between two steps, and the policy is gone", inStage(4, &protocol.Stage{Policy: "a", Steps: 2, Index: 1}), nil, inject.AllPods()},
		{"after the last step", inStage(4, &protocol.Stage{Policy: "a", Steps: 2, Index: 2}), steps, inject.AllPods()},
		{"all steps have ended", inStage(4, &protocol.Stage{Policy: "a", Steps: 2, Index: 1, Done: true}), steps, inject.AllPods()},
	} {
		t.Run(c.name, func(t *testing.T) {
			share, err := NewPods(c.set, c.policies)
			require.NoError(t, err)
			assert.Equal(t, c.share, share)
		})
	}
}

func TestSpec11_5_AnUnreadableStepGivesNoPodTheCurrentContent(t *testing.T) {
	invalid := policy("a", 1, nil, upTo(intstr.FromString("5%")))
	invalid.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}
	share, err := NewPods(inStage(4, nil), []outriggerv1.RolloutPolicy{invalid})
	require.ErrorContains(t, err, "RolloutPolicy a: spec.selector")
	assert.Equal(t, inject.Share{}, share)
	share, err = NewPods(inStage(4, &protocol.Stage{Step: &protocol.Step{UpTo: intstr.FromString("many")}}), nil)
	require.ErrorContains(t, err, "upTo many")
	assert.Equal(t, inject.Share{}, share)
}

func TestSpec11_5_TheFormerRevisionIsTheLastGoodOne(t *testing.T) {
	good := v1alpha1.GoodRevision{Revision: "logs-1", Hash: "old", ResourceVersion: "7"}
	progressing := func(reason string, generation int64) func(*v1alpha1.SidecarSet) {
		return func(set *v1alpha1.SidecarSet) {
			set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: reason, ObservedGeneration: generation}}
		}
	}
	for _, c := range []struct {
		name   string
		hash   string
		change func(*v1alpha1.SidecarSet)
		former *v1alpha1.GoodRevision
	}{
		{"another content", "new", func(*v1alpha1.SidecarSet) {}, &good},
		{"the same content", "old", func(*v1alpha1.SidecarSet) {}, nil},
		{"no rollout has ended", "new", func(set *v1alpha1.SidecarSet) { set.Status.GoodRevisions[0].ResourceVersion = "" }, nil},
		{"the first rollout", "new", func(set *v1alpha1.SidecarSet) { set.Status.GoodRevisions = nil }, nil},
		{"a pinned revision", "new", func(set *v1alpha1.SidecarSet) {
			set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: new("pin")}
		}, nil},
		{"NotUpdate", "new", func(set *v1alpha1.SidecarSet) {
			set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
		}, nil},
		{"pods have to be recreated", "new", progressing(v1alpha1.ReasonNotUpgradablePods, 4), nil},
		{"pods of an earlier generation had to be recreated", "new", progressing(v1alpha1.ReasonNotUpgradablePods, 3), &good},
		{"paused", "new", progressing(v1alpha1.ReasonPaused, 4), &good},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := edge()
			set.Status.GoodRevisions = []v1alpha1.GoodRevision{good}
			c.change(set)
			set.Annotations = map[string]string{v1alpha1.HashAnnotation: c.hash}
			assert.Equal(t, c.former, Former(set))
		})
	}
}
