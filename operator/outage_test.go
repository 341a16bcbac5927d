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

func (e *testEnv) testRunAgain(t *testing.T) {
	set := newSet(t, "again", "proxy:v1")
	require.NoError(t, e.Create(t.Context(), set))
	e.addPods(t, set, "default", "again-1")
	e.change(t, "again", setImage("proxy:v2"))
	id := e.await(t, "again", isStarted).Status.Rollout.WorkflowID
	first, err := e.temporal.DescribeWorkflow(t.Context(), id, "")
	require.NoError(t, err)
	require.NoError(t, e.temporal.TerminateWorkflow(t.Context(), id, "", "test"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		second, err := e.temporal.DescribeWorkflow(t.Context(), id, "")
		require.NoError(c, err)
		assert.NotEqual(c, first.WorkflowExecution.RunID, second.WorkflowExecution.RunID)
		assert.Equal(c, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, second.Status)
	}, soon, tick)
	assert.Equal(t, []int64{2}, e.signals(t, id))
	e.awaitEvent(t, "again", "RolloutRestarted", "generation 2 has pods to upgrade and no open run")
}

// state returns the resourceVersions of all SidecarSets and revisions.
func (e *testEnv) state(t *testing.T) map[string]string {
	all := map[string]string{}
	var sets v1alpha1.SidecarSetList
	require.NoError(t, e.List(t.Context(), &sets))
	for _, set := range sets.Items {
		all["set "+set.Name] = set.ResourceVersion
		for _, r := range e.revisions(t, set.Name) {
			all["revision "+r.Name] = r.ResourceVersion
		}
	}
	return all
}

func (e *testEnv) testRestart(t *testing.T) {
	before := e.state(t)
	require.NoError(t, e.cluster.Stop(cluster.Operator))
	require.NoError(t, e.cluster.StartAgain(t.Context(), cluster.Operator))
	e.awaitAllSeen(t)
	assert.Equal(t, before, e.state(t))
	assert.Zero(t, e.metric(t, "outrigger_status_writes_total"))
	assert.Zero(t, e.metric(t, `outrigger_rollout_starts_total{result="ok"}`))
	assert.Zero(t, e.metric(t, `outrigger_rollout_starts_total{result="error"}`))
}

// awaitAllSeen waits until a new operator has reconciled every SidecarSet. The operator reconciles only
// after the caches have synced.
func (e *testEnv) awaitAllSeen(t *testing.T) {
	var sets v1alpha1.SidecarSetList
	require.NoError(t, e.List(t.Context(), &sets))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		done := e.metric(c, `controller_runtime_reconcile_total{controller="sidecarset",result="success"}`) +
			e.metric(c, `controller_runtime_reconcile_total{controller="sidecarset",result="requeue_after"}`)
		assert.GreaterOrEqual(c, done, float64(len(sets.Items)))
		assert.Zero(c, e.metric(c, `controller_runtime_active_workers{controller="sidecarset"}`))
	}, soon, tick)
}

func (e *testEnv) testTemporalAway(t *testing.T) {
	set := newSet(t, "away", "proxy:v1")
	require.NoError(t, e.Create(t.Context(), set))
	e.addPods(t, set, "default", "away-1")
	e.await(t, "away", isStarted)
	require.NoError(t, e.cluster.Kill(cluster.Temporal))

	e.change(t, "away", setImage("proxy:v2"))
	got := e.await(t, "away", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, set.Generation, set.Status.ObservedGeneration, "status continues")
		hasReason(v1alpha1.ConditionProgressing, "EngineUnavailable")(c, set)
	})
	assert.Equal(t, int64(1), got.Status.Rollout.Generation)
	assert.Equal(t, []int32{1, 0}, counts(got)[:2])
	assert.Equal(t, reasonMessage{"EngineUnavailable", fmt.Sprintf("Temporal at %s does not respond; check it: kubectl sidecarset check", e.cluster.TemporalAddress)},
		reasonAndMessage(got, v1alpha1.ConditionDegraded))
	assert.Zero(t, e.metric(t, "outrigger_temporal_available"))
	e.awaitEvent(t, "away", "EngineUnavailable", fmt.Sprintf("Temporal at %s does not respond", e.cluster.TemporalAddress))
	e.await(t, "again", hasReason(v1alpha1.ConditionProgressing, "EngineUnavailable"))
	response, err := http.Get(e.role.Health + "/readyz")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode, "readiness does not depend on Temporal")

	require.NoError(t, e.cluster.StartAgain(t.Context(), cluster.Temporal))
	e.await(t, "away", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		isStarted(c, set)
		hasReason(v1alpha1.ConditionProgressing, "RolloutInProgress")(c, set)
		hasReason(v1alpha1.ConditionDegraded, "AsExpected")(c, set)
	})
	e.awaitEvent(t, "away", "EngineAvailable", "Temporal is available again")
	e.await(t, "again", hasReason(v1alpha1.ConditionProgressing, "RolloutInProgress"))
	assert.Equal(t, 1.0, e.metric(t, "outrigger_temporal_available"))
}

// switchTo stops the operator and starts an operator for another Temporal namespace. The new operator must first
// acquire the Lease for leader election.
func (e *testEnv) switchTo(t *testing.T, role, temporalNamespace string) {
	require.NoError(t, e.cluster.Stop(e.role.Name))
	var err error
	e.role, err = e.cluster.StartRole(t.Context(), role, "--temporal-namespace="+temporalNamespace, "--leader-elect=true")
	require.NoError(t, err)
}

func (e *testEnv) testRejection(t *testing.T) {
	e.switchTo(t, "operator-absent", "absent")
	require.NoError(t, e.Create(t.Context(), newSet(t, "rejected", "proxy:v1")))
	got := e.await(t, "rejected", hasReason(v1alpha1.ConditionDegraded, "EngineUnavailable"))
	assert.Equal(t, "Temporal at "+e.cluster.TemporalAddress+", namespace absent, rejects rollouts: the namespace does not exist "+
		"(correct --temporal-namespace or TEMPORAL_NAMESPACE, or create it: outrigger temporal setup); check it: kubectl sidecarset check", reasonAndMessage(got, v1alpha1.ConditionDegraded).message)
	assert.Zero(t, e.metric(t, "outrigger_temporal_available"))
	assert.Zero(t, e.metric(t, `outrigger_rollout_starts_total{result="ok"}`))
}

// A Temporal namespace that is created after the start of the server has no search attributes of Outrigger.
func (e *testEnv) testSearchAttributes(t *testing.T) {
	_, err := e.temporal.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: "bare", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour)})
	require.NoError(t, err)
	e.switchTo(t, "operator-bare", "bare")
	require.NoError(t, e.Create(t.Context(), newSet(t, "searchable", "proxy:v1")))
	got := e.await(t, "searchable", isStarted)
	e.await(t, "rejected", isStarted)

	bare, err := sdk.NewLazyClient(sdk.Options{HostPort: e.cluster.TemporalAddress, Namespace: "bare"})
	require.NoError(t, err)
	defer bare.Close()
	run, err := bare.DescribeWorkflow(t.Context(), got.Status.Rollout.WorkflowID, "")
	require.NoError(t, err)
	assert.Equal(t, 3, run.TypedSearchAttributes.Size())
}

func (e *testEnv) testDeletion(t *testing.T) {
	require.NoError(t, e.Delete(t.Context(), &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "first"}}))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Empty(c, e.revisions(c, "first"))
	}, soon, tick)
}
