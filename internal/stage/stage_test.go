package stage

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
)

func policy(name string, precedence int32, labels map[string]string, steps ...outriggerv1.RolloutStep) outriggerv1.RolloutPolicy {
	p := outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec = outriggerv1.RolloutPolicySpec{Selector: metav1.LabelSelector{MatchLabels: labels}, MatchingPrecedence: precedence, Steps: steps}
	return p
}

func upTo(v intstr.IntOrString) outriggerv1.RolloutStep { return outriggerv1.RolloutStep{UpTo: v} }

func edge() *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "logs", Generation: 4, Labels: map[string]string{"tier": "edge"}}}
	return set
}

func TestSpec11_1_OnePolicyApplies(t *testing.T) {
	tier, all := map[string]string{"tier": "edge"}, map[string]string(nil)
	deleted := policy("a", 1, tier)
	deleted.DeletionTimestamp = new(metav1.Now())
	unreadable := policy("c", 1, map[string]string{"a": "b c"})
	unreadable.DeletionTimestamp = deleted.DeletionTimestamp
	for _, c := range []struct {
		name     string
		policies []outriggerv1.RolloutPolicy
		applies  string
	}{
		{"none", nil, ""},
		{"another label", []outriggerv1.RolloutPolicy{policy("a", 1, map[string]string{"tier": "core"})}, ""},
		{"an empty selector selects all", []outriggerv1.RolloutPolicy{policy("a", 1, all)}, "a"},
		{"the lowest precedence applies", []outriggerv1.RolloutPolicy{policy("a", 9, tier), policy("b", 2, all)}, "b"},
		{"of equal precedences, the first name applies", []outriggerv1.RolloutPolicy{policy("b", 9, tier), policy("a", 9, all)}, "a"},
		{"a deleted policy with an invalid selector does not apply", []outriggerv1.RolloutPolicy{unreadable, policy("b", 9, tier)}, "b"},
		{"a deleted policy does not apply", []outriggerv1.RolloutPolicy{deleted, policy("b", 9, tier)}, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := PolicyOf(edge(), c.policies)
			require.NoError(t, err)
			if c.applies == "" {
				assert.Nil(t, found)
				return
			}
			assert.Equal(t, c.applies, found.Name)
		})
	}
}

func TestSpec11_1_AnInvalidSelectorIsAnError(t *testing.T) {
	invalid := policy("a", 1, nil)
	invalid.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}
	_, err := Resolve(edge(), nil, []outriggerv1.RolloutPolicy{invalid})
	require.ErrorContains(t, err, "RolloutPolicy a: spec.selector")
	current := &protocol.Stage{Generation: 4, Step: &protocol.Step{}}
	kept, err := Resolve(edge(), current, []outriggerv1.RolloutPolicy{invalid})
	require.NoError(t, err, "a step that has begun needs no policy")
	assert.Same(t, current, kept)
}

func TestSpec11_2_StepsAreReadWhenTheyBegin(t *testing.T) {
	five := upTo(intstr.FromString("5%"))
	five.Name, five.Bake, five.Approval = "few", &metav1.Duration{Duration: time.Minute}, &outriggerv1.StepApproval{}
	policies := []outriggerv1.RolloutPolicy{policy("a", 1, nil, upTo(intstr.FromInt32(1)), five)}
	first, err := Resolve(edge(), nil, policies)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Stage{Generation: 4, Policy: "a", Steps: 2, Step: &protocol.Step{UpTo: intstr.FromInt32(1)}}, first)

	kept, err := Resolve(edge(), first, nil)
	require.NoError(t, err)
	assert.Same(t, first, kept, "the step that has begun stays, although the policy is gone")

	between := &protocol.Stage{Generation: 4, Policy: "a", Steps: 2, Index: 1}
	second, err := Resolve(edge(), between, policies)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Step{Name: "few", UpTo: intstr.FromString("5%"), Bake: time.Minute, Approval: true}, second.Step)

	for name, changed := range map[string][]outriggerv1.RolloutPolicy{
		"the policy is gone":    nil,
		"the policy is shorter": {policy("a", 1, nil, upTo(intstr.FromInt32(1)))},
	} {
		done, err := Resolve(edge(), between, changed)
		require.NoError(t, err)
		assert.True(t, done.Done, name)
		assert.False(t, done.Limits(), name)
	}

	none, err := Resolve(edge(), nil, nil)
	require.NoError(t, err)
	assert.Nil(t, none, "without a policy nothing changes")
}

func TestSpec11_2_PodsThatAStepAllows(t *testing.T) {
	for _, c := range []struct {
		name               string
		upTo               intstr.IntOrString
		updated, remaining int
		allowed            int
	}{
		{"a number", intstr.FromInt32(3), 0, 200, 3},
		{"earlier pods count", intstr.FromInt32(3), 2, 198, 1},
		{"a percentage of all pods of the rollout", intstr.FromString("5%"), 1, 199, 9},
		{"a percentage is rounded up", intstr.FromString("1%"), 0, 10, 1},
		{"new pods enlarge the step", intstr.FromString("5%"), 10, 390, 10},
		{"more updated than the step", intstr.FromInt32(1), 5, 5, 0},
		{"more than there are", intstr.FromInt32(50), 0, 2, 2},
		{"none", intstr.FromInt32(0), 0, 2, 0},
		{"all", intstr.FromString("100%"), 7, 3, 3},
		{"no pods", intstr.FromString("5%"), 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			allowed, err := Allowed(&protocol.Stage{Step: &protocol.Step{UpTo: c.upTo}}, c.updated, c.remaining)
			require.NoError(t, err)
			assert.Equal(t, c.allowed, allowed)
		})
	}
	reached := &protocol.Stage{Step: &protocol.Step{UpTo: intstr.FromString("100%")}, Reached: new(time.Now())}
	allowed, err := Allowed(reached, 1, 9)
	require.NoError(t, err)
	assert.Zero(t, allowed, "no pod moves once the step is reached")
	allowed, err = Allowed(nil, 1, 9)
	require.NoError(t, err)
	assert.Equal(t, 9, allowed)
	_, err = Allowed(&protocol.Stage{Policy: "a", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("many")}}, 1, 9)
	require.ErrorContains(t, err, "RolloutPolicy a: upTo of step 1 of 1")
}

func TestSpec11_4_StatusKeepsTheStage(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)
	for name, s := range map[string]*protocol.Stage{
		"in a step": {Generation: 4, Policy: "a", Steps: 3, Step: &protocol.Step{Name: "canary", UpTo: intstr.FromString("5%")}},
		"baking": {Generation: 4, Policy: "a", Steps: 3, Index: 1, Reached: &at,
			Step: &protocol.Step{UpTo: intstr.FromInt32(1), Bake: time.Hour, Approval: true}, Approval: &protocol.Approval{By: "ann", Reason: "fine"}},
		"failed and resumed": {Generation: 4, Policy: "a", Steps: 3, Tolerated: 2, Step: &protocol.Step{UpTo: intstr.FromInt32(1), MaxFailed: new(intstr.FromString("2%")), MaxPerOwner: 1, RespectBudgets: true,
			Domains: &protocol.Domains{TopologyKey: "zone", MaxUnavailable: 2},
			Windows: []protocol.Window{{Schedule: "0 9 * * 1-5", Duration: 8 * time.Hour, TimeZone: "Europe/Berlin"}}}},
		"with rules of failure": {Generation: 4, Policy: "a", Steps: 3, Step: &protocol.Step{UpTo: intstr.FromInt32(1), MaxFailed: new(intstr.FromInt32(2)), Rollback: true,
			UnreadyFor: 5 * time.Minute, AppRestarts: 1, ProgressDeadline: 30 * time.Minute}},
		"resumed":           {Generation: 4, Policy: "a", Steps: 3, Tolerated: 2, Accept: true, Step: &protocol.Step{UpTo: intstr.FromInt32(1)}},
		"between two steps": {Generation: 4, Policy: "a", Steps: 3, Index: 2},
		"done":              {Generation: 4, Policy: "a", Steps: 3, Index: 2, Done: true},
	} {
		t.Run(name, func(t *testing.T) {
			set := edge()
			set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 4}
			ToStatus(set, s)
			assert.Equal(t, s, OfStatus(set))
			set.Generation = 5
			assert.Nil(t, OfStatus(set), "another generation starts from its first step")
		})
	}
	assert.Nil(t, OfStatus(edge()))
}

func TestSpec11_4_AStageWithoutAStepIsNoStage(t *testing.T) {
	for _, step := range []int32{0, -1} {
		set := edge()
		set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 4, Policy: "a", Stage: &v1alpha1.RolloutStage{Step: step, Steps: 2}}
		assert.Nil(t, OfStatus(set))
		share, err := NewPods(set, []outriggerv1.RolloutPolicy{policy("a", 1, nil, upTo(intstr.FromInt32(1)))})
		require.NoError(t, err)
		assert.Equal(t, inject.Share{}, share)
	}
}

// The operator writes status only if status differs from the stored status.
func TestSpec11_4_ARecordedStageEqualsItsStoredForm(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678000789, time.UTC)
	s := &protocol.Stage{Generation: 4, Policy: "a", Steps: 3, Reached: &at, Step: &protocol.Step{UpTo: intstr.FromInt32(1), Bake: time.Hour}}
	set := edge()
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 4}
	ToStatus(set, s)
	encoded, err := json.Marshal(set)
	require.NoError(t, err)
	var stored v1alpha1.SidecarSet
	require.NoError(t, json.Unmarshal(encoded, &stored))
	assert.True(t, equality.Semantic.DeepEqual(stored.Status.Rollout, set.Status.Rollout), "%s", encoded)
}

func TestSpec11_6_ALimitOfFailedPodsCoversAllPods(t *testing.T) {
	limit := &outriggerv1.RolloutFailure{MaxFailedPods: intstr.FromString("2%")}
	for name, c := range map[string]struct {
		steps []outriggerv1.RolloutStep
		want  []intstr.IntOrString
	}{
		"no steps":                  {nil, []intstr.IntOrString{intstr.FromString("100%")}},
		"the last step ends early":  {[]outriggerv1.RolloutStep{upTo(intstr.FromInt32(1))}, []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("100%")}},
		"the last step is all pods": {[]outriggerv1.RolloutStep{upTo(intstr.FromString("100%"))}, []intstr.IntOrString{intstr.FromString("100%")}},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy("a", 1, nil, c.steps...)
			p.Spec.Failure = limit
			current := &protocol.Stage{Generation: 4, Policy: "a"}
			for i, want := range c.want {
				current.Index, current.Step = i, nil
				resolved, err := Resolve(edge(), current, []outriggerv1.RolloutPolicy{p})
				require.NoError(t, err)
				assert.Equal(t, want, resolved.Step.UpTo)
				assert.Equal(t, len(c.want), resolved.Steps)
				failed, limited, err := MaxFailed(resolved, 149)
				require.NoError(t, err)
				assert.True(t, limited)
				assert.Equal(t, 2, failed, "rounded down")
			}
		})
	}
}

func TestSpec11_3_TheOtherLimitsOfAPolicyApplyAfterThePromotionOfItsLastStep(t *testing.T) {
	for name, c := range map[string]struct {
		limit func(*outriggerv1.RolloutPolicySpec)
		done  bool
	}{
		"failure": {func(p *outriggerv1.RolloutPolicySpec) {
			p.Failure = &outriggerv1.RolloutFailure{MaxFailedPods: intstr.FromInt32(1)}
		}, false},
		"windows": {func(p *outriggerv1.RolloutPolicySpec) {
			p.Windows = []outriggerv1.RolloutWindow{{Schedule: "0 9 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
		}, false},
		"owners":  {func(p *outriggerv1.RolloutPolicySpec) { p.MaxUnavailablePerOwner = 1 }, false},
		"domains": {func(p *outriggerv1.RolloutPolicySpec) { p.Domains = &outriggerv1.RolloutDomains{TopologyKey: "zone"} }, false},
		"none":    {func(*outriggerv1.RolloutPolicySpec) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy("a", 1, nil, upTo(intstr.FromInt32(1)), upTo(intstr.FromString("100%")))
			c.limit(&p.Spec)
			for _, index := range []int{2, 3} {
				resolved, err := Resolve(edge(), &protocol.Stage{Generation: 4, Policy: "a", Steps: 2, Index: index}, []outriggerv1.RolloutPolicy{p})
				require.NoError(t, err)
				assert.Equal(t, index, resolved.Index)
				assert.Equal(t, c.done, resolved.Done)
				if c.done {
					assert.Nil(t, resolved.Step)
					continue
				}
				assert.Equal(t, index+1, resolved.Steps)
				assert.Equal(t, stepOf(&p.Spec.Steps[1], &p.Spec), resolved.Step)
				allowed, err := Allowed(resolved, 1, 9)
				require.NoError(t, err)
				assert.Equal(t, 9, allowed)
			}
		})
	}
}

func TestSpec11_14_ADefinitionInStatusThatIsNoGateHasNoKind(t *testing.T) {
	upTo := intstr.FromInt32(1)
	for name, definition := range map[string]string{"no JSON": "{", "another gate": `{"name":"other"}`, "empty": ""} {
		set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 2, Stage: &v1alpha1.RolloutStage{
			Step: 1, Steps: 1, UpTo: &upTo, Gates: []v1alpha1.StageGate{{Name: "errors", Definition: definition, Phase: "Running"}},
		}}
		assert.Equal(t, []outriggerv1.RolloutGate{{Name: "errors"}}, OfStatus(set).Step.Gates, name)
	}
}

func TestSpec11_14_AGateThatStatusOmitsIsPending(t *testing.T) {
	upTo := intstr.FromInt32(1)
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 2, Stage: &v1alpha1.RolloutStage{Step: 1, Steps: 1, UpTo: &upTo, Gates: []v1alpha1.StageGate{
		{Name: "first", Phase: "Pending"}, {Name: "second", Phase: "Success"},
	}}}
	stage := OfStatus(set)
	assert.Equal(t, "first", stage.OpenGate().Name)
	stage = stage.WithGate(protocol.GateState{Name: "first", Phase: protocol.GateSuccess})
	assert.Nil(t, stage.OpenGate(), "each gate is measured once, whatever the order in status")
}
