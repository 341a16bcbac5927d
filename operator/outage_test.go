package operator

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdk "go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
)

func (b *bench) testRunAgain(t *testing.T) {
	set := newSet(t, "again", "proxy:v1")
	require.NoError(t, b.Create(t.Context(), set))
	b.addPods(t, set, "default", "again-1")
	b.change(t, "again", setImage("proxy:v2"))
	id := b.await(t, "again", isStarted).Status.Rollout.WorkflowID
	first, err := b.temporal.DescribeWorkflow(t.Context(), id, "")
	require.NoError(t, err)
	require.NoError(t, b.temporal.TerminateWorkflow(t.Context(), id, "", "test"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		second, err := b.temporal.DescribeWorkflow(t.Context(), id, "")
		require.NoError(c, err)
		assert.NotEqual(c, first.WorkflowExecution.RunID, second.WorkflowExecution.RunID)
		assert.Equal(c, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, second.Status)
	}, soon, tick)
	assert.Equal(t, []int64{2}, b.signals(t, id))
	b.awaitEvent(t, "again", "RolloutRestarted", "generation 2 has pods to upgrade and no open run")
}

// state is everything that the operator writes, with its resourceVersions.
func (b *bench) state(t *testing.T) map[string]string {
	all := map[string]string{}
	var sets v1alpha1.SidecarSetList
	require.NoError(t, b.List(t.Context(), &sets))
	for _, set := range sets.Items {
		all["set "+set.Name] = set.ResourceVersion
		for _, r := range b.revisions(t, set.Name) {
			all["revision "+r.Name] = r.ResourceVersion
		}
	}
	return all
}

func (b *bench) testRestart(t *testing.T) {
	before := b.state(t)
	require.NoError(t, b.cluster.Stop(cluster.Operator))
	require.NoError(t, b.cluster.StartAgain(t.Context(), cluster.Operator))
	b.awaitAllSeen(t)
	assert.Equal(t, before, b.state(t))
	assert.Zero(t, b.metric(t, "outrigger_status_writes_total"))
	assert.Zero(t, b.metric(t, `outrigger_handovers_total{result="ok"}`))
	assert.Zero(t, b.metric(t, `outrigger_handovers_total{result="error"}`))
}

// awaitAllSeen waits until a new operator has reconciled every set. It does so
// with full caches only.
func (b *bench) awaitAllSeen(t *testing.T) {
	var sets v1alpha1.SidecarSetList
	require.NoError(t, b.List(t.Context(), &sets))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		done := b.metric(c, `controller_runtime_reconcile_total{controller="sidecarset",result="success"}`) +
			b.metric(c, `controller_runtime_reconcile_total{controller="sidecarset",result="requeue_after"}`)
		assert.GreaterOrEqual(c, done, float64(len(sets.Items)))
		assert.Zero(c, b.metric(c, `controller_runtime_active_workers{controller="sidecarset"}`))
	}, soon, tick)
}

func (b *bench) testTemporalAway(t *testing.T) {
	set := newSet(t, "away", "proxy:v1")
	require.NoError(t, b.Create(t.Context(), set))
	b.addPods(t, set, "default", "away-1")
	b.await(t, "away", isStarted)
	require.NoError(t, b.cluster.Kill(cluster.Temporal))

	b.change(t, "away", setImage("proxy:v2"))
	got := b.await(t, "away", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, set.Generation, set.Status.ObservedGeneration, "status goes on")
		hasReason(v1alpha1.ConditionProgressing, "EngineUnavailable")(c, set)
	})
	assert.Equal(t, int64(1), got.Status.Rollout.Generation)
	assert.Equal(t, []int32{1, 0}, counts(got)[:2])
	assert.Equal(t, reasonMessage{"EngineUnavailable", fmt.Sprintf("Temporal at %s does not answer", b.cluster.TemporalAddress)},
		reasonAndMessage(got, v1alpha1.ConditionDegraded))
	assert.Zero(t, b.metric(t, "outrigger_engine_available"))
	b.await(t, "again", hasReason(v1alpha1.ConditionProgressing, "EngineUnavailable"))
	response, err := http.Get(b.role.Health + "/readyz")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode, "readiness does not depend on Temporal")

	require.NoError(t, b.cluster.StartAgain(t.Context(), cluster.Temporal))
	b.await(t, "away", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		isStarted(c, set)
		hasReason(v1alpha1.ConditionProgressing, "RolloutInProgress")(c, set)
		hasReason(v1alpha1.ConditionDegraded, "AsExpected")(c, set)
	})
	b.await(t, "again", hasReason(v1alpha1.ConditionProgressing, "RolloutInProgress"))
	assert.Equal(t, 1.0, b.metric(t, "outrigger_engine_available"))
}

// switchTo goes on with an operator for another Temporal namespace, which has to
// win the lease first.
func (b *bench) switchTo(t *testing.T, role, temporalNamespace string) {
	require.NoError(t, b.cluster.Stop(b.role.Name))
	var err error
	b.role, err = b.cluster.StartRole(t.Context(), role, "--temporal-namespace="+temporalNamespace, "--leader-elect=true")
	require.NoError(t, err)
}

func (b *bench) testRefusal(t *testing.T) {
	b.switchTo(t, "operator-absent", "absent")
	require.NoError(t, b.Create(t.Context(), newSet(t, "refused", "proxy:v1")))
	got := b.await(t, "refused", hasReason(v1alpha1.ConditionDegraded, "EngineUnavailable"))
	assert.Equal(t, "Temporal at "+b.cluster.TemporalAddress+", namespace absent, refuses rollouts: Namespace absent is not found. "+
		"(does the namespace exist, and may the operator use it?)", reasonAndMessage(got, v1alpha1.ConditionDegraded).message)
	assert.Zero(t, b.metric(t, "outrigger_engine_available"))
	assert.Zero(t, b.metric(t, `outrigger_handovers_total{result="ok"}`))
}

// A Temporal namespace made after the server knows none of the attributes.
func (b *bench) testSearchAttributes(t *testing.T) {
	_, err := b.temporal.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: "bare", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour)})
	require.NoError(t, err)
	b.switchTo(t, "operator-bare", "bare")
	require.NoError(t, b.Create(t.Context(), newSet(t, "searchable", "proxy:v1")))
	got := b.await(t, "searchable", isStarted)
	b.await(t, "refused", isStarted)

	bare, err := sdk.NewLazyClient(sdk.Options{HostPort: b.cluster.TemporalAddress, Namespace: "bare"})
	require.NoError(t, err)
	defer bare.Close()
	run, err := bare.DescribeWorkflow(t.Context(), got.Status.Rollout.WorkflowID, "")
	require.NoError(t, err)
	assert.Equal(t, 3, run.TypedSearchAttributes.Size())
}

func (b *bench) testDeletion(t *testing.T) {
	require.NoError(t, b.Delete(t.Context(), &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "first"}}))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Empty(c, b.revisions(c, "first"))
	}, soon, tick)
}
