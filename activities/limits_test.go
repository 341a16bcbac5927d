package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
)

func onNode(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = name }
}

func zoneNode(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
}

func oneZone() *protocol.Stage {
	return &protocol.Stage{Generation: 2, Policy: "p", Steps: 1, Step: &protocol.Step{
		UpTo: intstr.FromString("100%"), Domains: &protocol.Domains{TopologyKey: corev1.LabelTopologyZone, MaxUnavailable: 1},
	}}
}

func TestSpec11_10_ABatchUpgradesThePodsOfOneDomain(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a", onNode("x-1")), webPod("b", onNode("y-1")), webPod("c", onNode("x-2")))
	for _, node := range []*corev1.Node{zoneNode("x-1", "x"), zoneNode("x-2", "x"), zoneNode("y-1", "y")} {
		require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), node))
	}
	result, _, err := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true, Stage: oneZone()}).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "c"}, selectedNames(result.Pods))
	assert.Equal(t, []string{"b"}, selectedNames(result.Queued))

	b := cluster.batchOf("a", "b", "c")
	b.input.Stage = oneZone()
	_, err = cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, selectedNames(b.left))
	_, err = cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, selectedNames(b.left), "the cache does not show the writes")
	for _, name := range []string{"a", "c"} {
		pod := webPod(name)
		cluster.edit(pod, func() { upgraded(pod) })
	}
	cluster.sync()
	_, err = cluster.refills(b)
	require.NoError(t, err)
	assert.Empty(t, b.left)
}

func TestSpec11_10_NoPodIsUpgradedWhileTheDomainsCannotBeRead(t *testing.T) {
	lists := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, ok := list.(*metav1.PartialObjectMetadataList); ok {
			return errors.New("forbidden")
		}
		return c.List(ctx, list, options...)
	}}
	cluster := newTestCluster(t, lists, webSet(9), webPod("a"))
	_, _, err := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true, Stage: oneZone()}).check(t.Context())
	require.ErrorContains(t, err, "SidecarSet logs: list nodes for the domains of label topology.kubernetes.io/zone: forbidden")
	b := cluster.batchOf("a")
	b.input.Stage = oneZone()
	_, err = cluster.refills(b)
	require.ErrorContains(t, err, "list nodes")
	assert.Equal(t, map[string]string{"a": "side:v1"}, cluster.images())
}

func TestSpec11_11_ABatchRespectsPodDisruptionBudgets(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a"), webPod("b"), webPod("c"))
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web"}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	budget.Spec.MaxUnavailable = new(intstr.FromInt32(1))
	budget.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 3, CurrentHealthy: 3, DesiredHealthy: 2, DisruptionsAllowed: 1}
	require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), budget))
	current := &protocol.Stage{Generation: 2, Policy: "p", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("100%"), RespectBudgets: true}}
	b := cluster.batchOf("a", "b", "c")
	b.input.Stage = current
	refill := func(left ...string) {
		t.Helper()
		_, err := cluster.refills(b)
		require.NoError(t, err)
		assert.Equal(t, left, selectedNames(b.left))
	}
	refill("b", "c")
	refill("b", "c") // the cache does not show the write
	cluster.sync()
	refill("b", "c") // the kubelet has not observed the write, so the pod is still ready
	result, _, err := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stage: current, Stages: true}).check(t.Context())
	require.NoError(t, err)
	assert.Empty(t, result.Pods)
	assert.Contains(t, result.Message, "waits for PodDisruptionBudget d/web (2 healthy, 2 needed)")
	assert.Equal(t, time.Minute, result.Again, "the operator does not watch budgets")
	pod := webPod("a")
	cluster.edit(pod, func() { upgraded(pod) })
	cluster.sync()
	refill("c")
}

func TestSpec11_11_NoPodIsUpgradedWhileBudgetsCannotBeRead(t *testing.T) {
	lists := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, ok := list.(*policyv1.PodDisruptionBudgetList); ok {
			return errors.New("forbidden")
		}
		return c.List(ctx, list, options...)
	}}
	cluster := newTestCluster(t, lists, webSet(9), webPod("a"))
	b := cluster.batchOf("a")
	b.input.Stage = &protocol.Stage{Generation: 2, Policy: "p", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("100%"), RespectBudgets: true}}
	_, err := cluster.refills(b)
	require.EqualError(t, err, "SidecarSet logs: list PodDisruptionBudgets: forbidden (apply config/rbac if the permission is missing)")
	assert.Equal(t, map[string]string{"a": "side:v1"}, cluster.images())
}
