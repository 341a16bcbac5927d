package operator

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube"
)

// The cache may still contain a SidecarSet that has been deleted.
func TestTheStatusOfADeletedSetIsNoError(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	metrics := newMetrics(prometheus.NewRegistry())
	status := &statusStep{
		statusWriter: &statusWriter{reported: &reports{}, client: fake.NewClientBuilder().WithScheme(scheme).Build(), writes: metrics.statusWrites},
		evicts:       evictsNothing,
		metrics:      metrics.rollouts,
	}
	before := fixture.SidecarSet("gone")
	set := before.DeepCopy()
	set.Status.LatestRevision = "gone-1"
	require.NoError(t, status.reconcile(t.Context(), &pass{before: before, set: set}))
}

func (e *testEnv) testStatus(t *testing.T) {
	set := newSet(t, "counted", "proxy:v1")
	require.NoError(t, e.Create(t.Context(), set))
	e.addPods(t, set, "default", "counted-1", "counted-2", "counted-3")
	got := e.await(t, "counted", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		isStarted(c, set)
		assert.Equal(c, []int32{3, 3, 3, 3}, counts(set))
	})
	assert.Equal(t, reasonMessage{"RolloutComplete", "3 of 3 pods updated, 3 of them ready; 0 to go, 0 unavailable of 1 allowed"},
		reasonAndMessage(got, v1alpha1.ConditionProgressing))

	e.change(t, "counted", setImage("proxy:v2"))
	got = e.await(t, "counted", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		isStarted(c, set)
		assert.Equal(c, []int32{3, 0, 3, 0}, counts(set))
	})
	assert.Equal(t, reasonMessage{"RolloutInProgress", "0 of 3 pods updated, 0 of them ready; 3 to go, 0 unavailable of 1 allowed"},
		reasonAndMessage(got, v1alpha1.ConditionProgressing))

	e.change(t, "counted", setImage("proxy:v1"))
	e.await(t, "counted", hasReason(v1alpha1.ConditionProgressing, "RolloutComplete"))
	e.awaitEvent(t, "counted", "RolloutComplete", "3 of 3 pods updated")

	e.change(t, "counted", func(set *v1alpha1.SidecarSet) {
		set.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NEW", Value: "x"}}
	})
	got = e.await(t, "counted", hasReason(v1alpha1.ConditionDegraded, "NotUpgradablePods"))
	assert.Equal(t, "3 of 3 pods cannot be upgraded in place and keep their version until they are recreated, such as default/counted-1; see the field and the command: kubectl sidecarset why counted",
		reasonAndMessage(got, v1alpha1.ConditionDegraded).message)
	e.awaitEvent(t, "counted", "NotUpgradablePods", "SidecarSet in-place update detected 3 not upgradable pod(s) in this round, will skip them: 3 of 3 pods")

	require.NoError(t, e.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "counted-1"}}))
	e.await(t, "counted", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, []int32{2, 0, 2, 0}, counts(set))
	})
}

func counts(set *v1alpha1.SidecarSet) []int32 {
	return []int32{set.Status.MatchedPods, set.Status.UpdatedPods, set.Status.ReadyPods, set.Status.UpdatedReadyPods}
}
