package view

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/stage"
)

func TestAPlanHasThePodsOfEachStep(t *testing.T) {
	set, sorted := logs(t)
	set.Status.Rollout = nil
	policy := edge()
	policy.Spec.Steps[3].UpTo = intstr.FromString("15%")
	in := &PlanInput{Input: Input{Set: set.DeepCopy(), Revisions: sorted}, Stored: set, Policies: []outriggerv1.RolloutPolicy{*policy}}
	in.Set.Spec.Containers[0].Image = "agent:v3"
	fixture.Hashed(in.Set)
	for i := range 40 {
		in.Pods = append(in.Pods, pod(t, fmt.Sprintf("web-%02d", i), "agent:v2"))
	}
	policy.Spec.Steps[1].UpTo = intstr.FromString("5%")
	p, err := NewPlan(in)
	require.NoError(t, err)
	golden(t, "plan-steps", p.Text)
	assert.Equal(t, 40, p.upgraded())

	// A plan of the stored version continues in the current step.
	in.Set, in.Pods = set, in.Pods[:0]
	current := copyOf(&policy.Spec.Steps[1])
	current.Gates = []outriggerv1.RolloutGate{{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{}}}
	stage.ToStatus(withRollout(set), &protocol.Stage{Generation: 2, Policy: "edge", Steps: 4, Index: 1, Reached: new(noon), Step: current})
	for i, image := range []string{"agent:v2", "agent:v1", "agent:v1"} {
		in.Pods = append(in.Pods, pod(t, string(rune('a'+i)), image))
	}
	p, err = NewPlan(in)
	require.NoError(t, err)
	assert.Equal(t, []string{"RolloutPolicy edge:", "  step 2 of 4: 0 more pods (1 of 3), waits for gate errors, waits for approval", "  step 3 of 4: 2 more pods (3 of 3)"}, p.stepLines())
}

func withRollout(set *v1alpha1.SidecarSet) *v1alpha1.SidecarSet {
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: set.Generation}
	return set
}

func TestAPlanWithoutTheRightToReadPoliciesSaysSo(t *testing.T) {
	set, sorted := logs(t)
	p, err := NewPlan(&PlanInput{Input: Input{Set: set, Revisions: sorted, Pods: []*corev1.Pod{pod(t, "a", "agent:v1")}}, Stored: set, PoliciesUnknown: "not allowed"})
	require.NoError(t, err)
	assert.Equal(t, []string{"without the RolloutPolicies, their steps are not known: not allowed"}, p.Notes)
}

func TestABatchOfAPlanHasFewPodsOfOneOwner(t *testing.T) {
	set, sorted := logs(t)
	set.Status.Rollout = nil
	policy := edge()
	policy.Spec.Steps, policy.Spec.MaxUnavailablePerOwner = nil, 1
	in := &PlanInput{Input: Input{Set: set, Revisions: sorted}, Stored: set, Policies: []outriggerv1.RolloutPolicy{*policy}}
	for _, name := range []string{"a-1", "a-2", "a-3", "b-1"} {
		in.Pods = append(in.Pods, pod(t, name, "agent:v1", func(p *corev1.Pod) { p.OwnerReferences[0].UID = types.UID(name[:1]) }))
	}
	p, err := NewPlan(in)
	require.NoError(t, err)
	assert.Equal(t, 4, p.upgraded())
	for _, batch := range p.Batches {
		assert.LessOrEqual(t, strings.Count(strings.Join(batch, " "), "default/a-"), 1, "%v", p.Batches)
	}
	assert.Len(t, p.Batches, 3)
}

func TestABatchOfAPlanHasPodsOfOneDomain(t *testing.T) {
	set, sorted := logs(t)
	set.Status.Rollout, set.Spec.UpdateStrategy.MaxUnavailable = nil, new(intstr.FromInt32(9))
	policy := edge()
	policy.Spec.Steps, policy.Spec.Domains = nil, &outriggerv1.RolloutDomains{TopologyKey: "zone", MaxUnavailableDomains: 1}
	newInput := func() *PlanInput {
		in := &PlanInput{Input: Input{Set: set, Revisions: sorted}, Stored: set, Policies: []outriggerv1.RolloutPolicy{*policy}}
		for _, name := range []string{"a-1", "b-1", "a-2", "b-2"} {
			in.Pods = append(in.Pods, pod(t, name, "agent:v1", func(p *corev1.Pod) { p.Spec.NodeName = name[:1] }))
		}
		return in
	}
	in := newInput()
	in.Domains = func(topologyKey string) (func(string) string, error) {
		assert.Equal(t, "zone", topologyKey)
		return func(node string) string { return "zone-" + node }, nil
	}
	p, err := NewPlan(in)
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"default/a-1", "default/a-2"}, {"default/b-1", "default/b-2"}}, p.Batches)

	in = newInput()
	in.Domains = func(string) (func(string) string, error) { return nil, errors.New("not allowed") }
	p, err = NewPlan(in)
	require.NoError(t, err)
	assert.Equal(t, []string{"the plan ignores the limit of domains, because the nodes cannot be read: not allowed"}, p.Notes)
	assert.Len(t, p.Batches, 1)
}
