//go:build large

package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
	"github.com/outrigger/outrigger/internal/podstate"
)

// The test evicts 1,000 pods of 100 owners with PodDisruptionBudgets, and kills each process in turn.
func TestLargeEvictions(t *testing.T) {
	const owners, perOwner = 100, 10
	s := newStagedScenario(t, 0, intstr.FromString("10%"))
	s.ctx = t.Context()
	for i := range owners {
		owner := deployment(s.name, perOwner)
		owner.Name = fmt.Sprintf("app-%02d", i)
		owner.Spec.Template.Labels["owner"], owner.Spec.Selector.MatchLabels["owner"] = owner.Name, owner.Name
		require.NoError(t, stack.kube.Create(s.ctx, owner))
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: owner.Name}}
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"owner": owner.Name}}
		budget.Spec.MaxUnavailable = new(intstr.FromInt32(2))
		require.NoError(t, stack.kube.Create(s.ctx, budget))
	}
	s.await(observer.Converged(owners * perOwner))
	s.editEnvironment("debug")
	s.evict()
	killed := []string{"worker-1", "operator", "worker-2", "webhook", cluster.Temporal}
	for i, process := range killed {
		s.awaitEvictionsOf(perOwner, int32(50+i*150))
		require.NoError(t, stack.Kill(process))
		require.NoError(t, stack.StartAgain(s.ctx, process))
	}
	s.awaitEvictionsOf(perOwner, owners*perOwner)
	status := s.awaitEvictions("the end", func(e *outriggerv1.EvictionStatus) bool { return e.Remaining == 0 && e.Since == nil })
	assert.Equal(t, int32(owners*perOwner), status.Evicted, "no pod is evicted twice")
	assert.Empty(t, status.Failed)
	assert.Equal(t, map[string]int{"debug": owners * perOwner}, s.environments())
}

// awaitEvictionsOf waits until the policy reports the given number of evictions, and asserts that meanwhile at
// most one pod of each owner is unavailable.
func (s *scenario) awaitEvictionsOf(perOwner int, evicted int32) {
	s.t.Helper()
	s.awaitEvictions(fmt.Sprintf("%d evictions", evicted), func(e *outriggerv1.EvictionStatus) bool {
		var pods corev1.PodList
		if err := stack.kube.List(s.ctx, &pods, client.InNamespace(s.name)); err != nil {
			return false
		}
		ready := map[string]int{}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if podstate.Ready(pod) && pod.DeletionTimestamp == nil {
				ready[pod.Labels["owner"]]++
			}
		}
		for owner, n := range ready {
			assert.GreaterOrEqual(s.t, n, perOwner-1, owner)
		}
		return e.Evicted >= evicted
	})
}
