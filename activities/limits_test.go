package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
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

// If the data of a limit cannot be read, the run still stops a failed rollout, and only the upgrades of pods
// wait.
func TestSpec11_12_AFailureNeedsNoDataOfTheLimits(t *testing.T) {
	unreadable := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		switch list.(type) {
		case *metav1.PartialObjectMetadataList, *policyv1.PodDisruptionBudgetList:
			return errors.New("forbidden")
		}
		return c.List(ctx, list, options...)
	}}
	failing := webPod("a", upgraded, converging, func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
	})
	former := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kruise-system", Name: "logs-1", Labels: map[string]string{v1alpha1.SidecarSetNameLabel: "logs"},
	}}
	var err error
	former.Data.Raw, err = revision.Content(&webSet(9).Spec)
	require.NoError(t, err)
	for name, limit := range map[string]protocol.Step{
		"domains": {Domains: &protocol.Domains{TopologyKey: corev1.LabelTopologyZone, MaxUnavailable: 1}},
		"budgets": {RespectBudgets: true},
	} {
		for cause, change := range map[string]func(*protocol.Stage){
			"ann aborted the rollout of generation 2": func(s *protocol.Stage) { s.Aborted = &protocol.Approval{By: "ann"} },
			"1 pod failed after the upgrade":          func(s *protocol.Stage) { s.Step.MaxFailed = new(intstr.FromInt32(0)) },
		} {
			t.Run(name+": "+cause, func(t *testing.T) {
				set := webSet(9)
				set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Revision: former.Name, Hash: "former", ResourceVersion: "1"}}
				cluster := newTestCluster(t, unreadable, set, failing.DeepCopy(), webPod("b"))
				require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), former.DeepCopy()))
				step := limit
				step.UpTo, step.Rollback = intstr.FromString("100%"), true
				current := &protocol.Stage{Generation: 2, Policy: "p", Steps: 1, Step: &step}
				input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true, Stage: current}
				_, _, err := cluster.newNextBatch(input).check(t.Context())
				require.ErrorContains(t, err, "forbidden")

				change(current)
				result, again, err := cluster.newNextBatch(input).check(t.Context())
				require.NoError(t, err)
				assert.Zero(t, again)
				assert.Contains(t, result.Failure.Reason, cause)
				assert.Equal(t, "logs-1", result.Failure.Quarantine.Revision)
				assert.Empty(t, result.Pods)

				b := cluster.batchOf("b")
				b.input.Stage = current
				again, err = cluster.refills(b)
				require.NoError(t, err)
				assert.Zero(t, again)
				assert.True(t, b.result().Failing)
				assert.Equal(t, map[string]string{"a": "side:v2", "b": "side:v1"}, cluster.images())
			})
		}
	}
}
