package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/observer"
)

const (
	zoneLabel = "test.outrigger.io/zone"
	zones     = 3
)

// labelZones labels one node for each zone.
func (s *scenario) labelZones() {
	s.t.Helper()
	for i := range zones {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i+1)}}
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, zoneLabel, node.Name)
		require.NoError(s.t, stack.kube.Patch(s.ctx, node, client.RawPatch(types.MergePatchType, patch)))
	}
}

// createOwners creates n Deployments with one pod in each zone, and waits until the pods are ready.
func (s *scenario) createOwners(n int) {
	s.t.Helper()
	for i := range n {
		owner := deployment(s.name, zones)
		owner.Name = fmt.Sprint("app-", i)
		owner.Spec.Template.Labels["owner"], owner.Spec.Selector.MatchLabels["owner"] = owner.Name, owner.Name
		owner.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: zoneLabel, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: owner.Spec.Selector,
		}}
		require.NoError(s.t, stack.kube.Create(s.ctx, owner))
	}
	s.await(observer.Converged(n * zones))
}

func (s *scenario) patchPolicy(spec string) {
	s.t.Helper()
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	require.NoError(s.t, stack.kube.Patch(s.ctx, policy, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))))
}

// inProgress replays the updates in order. After the write to each pod, inProgress calls check with the
// number of upgrades in progress for each group of pods.
func (s *scenario) inProgress(group func(observer.Update) string, check func(pods map[string]int)) {
	s.t.Helper()
	type event struct {
		observer.Update
		change int
	}
	var events []event
	asked, served := s.watched.Updates()
	for _, update := range served {
		events = append(events, event{update, -1})
	}
	for _, update := range asked {
		events = append(events, event{update, 1})
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.At.Compare(b.At) })
	pods := map[string]int{}
	for _, e := range events {
		name := group(e.Update)
		if pods[name] += e.change; pods[name] == 0 {
			delete(pods, name)
		}
		if e.change > 0 {
			check(pods)
		}
	}
	require.Empty(s.t, pods)
}

func nodeOf(update observer.Update) string  { return update.Node }
func ownerOf(update observer.Update) string { return update.Labels["owner"] }

func TestSpec11_11_NoUpgradeViolatesAPodDisruptionBudget(t *testing.T) {
	t.Parallel()
	s := newStagedScenario(t, 0, intstr.FromString("100%"))
	s.labelZones()
	s.patchPolicy(`{"respectPodDisruptionBudgets":true,"domains":{"topologyKey":"` + zoneLabel + `","maxUnavailableDomains":2}}`)
	const owners = 30
	s.createOwners(owners)
	for i := range owners {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: fmt.Sprint("app-", i)}}
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"owner": budget.Name}}
		budget.Spec.MaxUnavailable = new(intstr.FromInt32(1))
		if i == 0 {
			budget.Spec.MaxUnavailable = new(intstr.FromInt32(0))
		}
		require.NoError(t, stack.kube.Create(s.ctx, budget))
	}
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == (owners-1)*zones && v.InFlight == 0 })
	status := s.awaitStatus("the budget that stops the rollout", func(status protocol.RolloutStatus) bool {
		return strings.Contains(status.Message, "waits for PodDisruptionBudget "+s.name+"/app-0 (3 healthy, 3 needed)")
	})
	assert.Equal(t, protocol.PhaseWaiting, status.Phase)
	assert.Equal(t, (owners-1)*zones, s.watched.View().Updated)
	s.inProgress(ownerOf, func(pods map[string]int) {
		for owner, n := range pods {
			assert.Equal(t, 1, n, owner)
		}
	})
	s.inProgress(nodeOf, func(pods map[string]int) { assert.LessOrEqual(t, len(pods), 2, "zones with upgrades in progress") })
}

func TestSpec11_10_OneZoneAndOnePodOfEachOwnerAtATime(t *testing.T) {
	t.Parallel()
	s := newStagedScenario(t, 0, intstr.FromString("100%"))
	s.labelZones()
	s.patchPolicy(`{"maxUnavailablePerOwner":1,"domains":{"topologyKey":"` + zoneLabel + `"}}`)
	const owners = 30
	s.createOwners(owners)
	s.upgradeTo("side:v2")
	s.await(observer.Converged(owners * zones))
	var order []string
	s.inProgress(nodeOf, func(pods map[string]int) {
		assert.Len(t, pods, 1, "zones with upgrades in progress")
		for node := range pods {
			if len(order) == 0 || order[len(order)-1] != node {
				order = append(order, node)
			}
		}
	})
	assert.Len(t, order, zones, "a zone ends before the next zone begins: %v", order)
	s.inProgress(ownerOf, func(pods map[string]int) {
		for owner, n := range pods {
			assert.Equal(t, 1, n, owner)
		}
	})
}
