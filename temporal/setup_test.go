package temporal

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outrigger/outrigger/api/protocol"
)

func TestSetupWithoutRights(t *testing.T) {
	ca := newAuthority(t, "ca")
	_, address := startFrontend(t, ca.serverConfig(t, serverName, time.Hour, nil), func(metadata.MD) error { return nil })
	c := connect(t, &Flags{Address: address, CAPath: writeFile(t, "ca.crt", string(ca.pem)), ServerName: serverName})
	_, err := setUp(t, c, "sidecars.a1b2c", false)
	require.ErrorContains(t, err, "list the search attributes of namespace sidecars.a1b2c: ")
	require.ErrorContains(t, err, "; on Temporal Cloud: tcld namespace search-attributes add --namespace sidecars.a1b2c "+
		"--sa RolloutPhase=Keyword --sa SidecarSet=Keyword --sa SidecarSetGeneration=Int")
}

func TestNamespaces(t *testing.T) {
	server := startTemporal(t)
	t.Run("setup", func(t *testing.T) { testSetup(t, server) })
	t.Run("another type", func(t *testing.T) { testAnotherType(t, server) })
	t.Run("prune", func(t *testing.T) { testPrune(t, server) })
}

func setUp(t *testing.T, c client.Client, namespace string, dryRun bool) ([]string, error) {
	var out strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := (&Setup{Client: c, Namespace: namespace, Retention: 48 * time.Hour, DryRun: dryRun, Out: &out}).Run(ctx)
	return strings.Split(strings.TrimSpace(out.String()), "\n"), err
}

func testSetup(t *testing.T, server string) {
	c := connect(t, &Flags{Address: server})
	done, err := setUp(t, c, "sidecars", true)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"would create namespace sidecars, retention 48h0m0s",
		"would add search attribute RolloutPhase, Keyword",
		"would add search attribute SidecarSet, Keyword",
		"would add search attribute SidecarSetGeneration, Int",
	}, done)
	cause, _ := Explain(describeNamespace(t.Context(), c, "sidecars"))
	assert.Equal(t, "the namespace does not exist", cause, "nothing was done")

	done, err = setUp(t, c, "sidecars", false)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"created namespace sidecars, retention 48h0m0s",
		"added search attribute RolloutPhase, Keyword",
		"added search attribute SidecarSet, Keyword",
		"added search attribute SidecarSetGeneration, Int",
	}, done)
	for _, dryRun := range []bool{true, false} {
		done, err = setUp(t, c, "sidecars", dryRun)
		require.NoError(t, err)
		assert.Equal(t, []string{
			"namespace sidecars exists, retention 48h0m0s",
			"search attribute RolloutPhase exists",
			"search attribute SidecarSet exists",
			"search attribute SidecarSetGeneration exists",
		}, done)
	}
	known, err := c.OperatorService().ListSearchAttributes(t.Context(), &operatorservice.ListSearchAttributesRequest{Namespace: "sidecars"})
	require.NoError(t, err)
	for name, kind := range SearchAttributes() {
		assert.Equal(t, kind, known.CustomAttributes[name], name)
	}
}

func testAnotherType(t *testing.T, server string) {
	c := connect(t, &Flags{Address: server})
	_, err := c.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: "taken", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour)})
	require.NoError(t, err)
	require.NoError(t, retryWhileNew(t.Context(), func(ctx context.Context) error {
		_, err := c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
			Namespace: "taken", SearchAttributes: map[string]enums.IndexedValueType{protocol.RolloutPhaseAttribute: enums.INDEXED_VALUE_TYPE_KEYWORD, protocol.SidecarSetAttribute: enums.INDEXED_VALUE_TYPE_TEXT}})
		return err
	}))
	done, err := setUp(t, c, "taken", false)
	require.ErrorContains(t, err, "search attribute SidecarSet of namespace taken is of type Text, not Keyword")
	assert.Equal(t, []string{"namespace taken exists, retention 24h0m0s", "search attribute RolloutPhase exists"}, done)
}

func testPrune(t *testing.T, server string) {
	c := connect(t, &Flags{Address: server})
	_, err := setUp(t, c, DefaultNamespace, false)
	require.NoError(t, err)
	attributes := temporal.NewSearchAttributes(
		temporal.NewSearchAttributeKeyInt64(protocol.GenerationAttribute).ValueSet(7),
		temporal.NewSearchAttributeKeyKeyword(protocol.RolloutPhaseAttribute).ValueSet(string(protocol.PhasePaused)))
	start := func(name, queue string) {
		options := client.StartWorkflowOptions{ID: "sidecarset/" + name, TaskQueue: queue, TypedSearchAttributes: attributes}
		_, err := c.ExecuteWorkflow(t.Context(), options, protocol.RolloutWorkflow, 1)
		require.NoError(t, err)
	}
	start("a/1", "gone")
	start("b/2", "gone")
	start("c/3", "alive")
	prune := func(cluster, answer string, yes bool) string {
		var out strings.Builder
		p := &Prune{Client: c, Namespace: DefaultNamespace, Cluster: cluster, Yes: yes, In: strings.NewReader(answer), Out: &out}
		require.NoError(t, p.Run(t.Context()))
		return out.String()
	}
	// The list of runs is eventually consistent.
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		listed := prune("gone", "no\n", false)
		assert.Regexp(collect, `sidecarset/a/1 +20\S+Z +7 +Paused\n`, listed)
		assert.Contains(collect, listed, "sidecarset/b/2")
		assert.NotContains(collect, listed, "sidecarset/c/3")
		assert.Contains(collect, listed, "End 2 runs in namespace default? (yes or no) nothing was ended\n")
		assert.NotContains(collect, listed, "warning")
	}, timeout, 50*time.Millisecond)
	status := func(name string) enums.WorkflowExecutionStatus {
		described, err := c.DescribeWorkflowExecution(t.Context(), "sidecarset/"+name, "")
		require.NoError(t, err)
		return described.GetWorkflowExecutionInfo().GetStatus()
	}
	assert.Contains(t, prune("gone", "", false), "nothing was ended", "no answer is no")
	assert.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, status("a/1"))

	require.NoError(t, c.TerminateWorkflow(t.Context(), "sidecarset/b/2", "", "meanwhile"))
	assert.Contains(t, prune("gone", "yes\n", false), "\n")
	assert.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, status("a/1"))
	assert.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, status("c/3"))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, "no open runs of cluster gone in namespace default\n", prune("gone", "", false))
	}, timeout, 50*time.Millisecond)
	assert.Contains(t, prune("alive", "", true), "ended 1 runs")
	assert.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, status("c/3"))

	polling := worker.New(c, "alive", worker.Options{Identity: "outrigger-worker@here"})
	polling.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ int) error { return workflow.Sleep(ctx, time.Hour) }, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	require.NoError(t, polling.Start())
	t.Cleanup(polling.Stop)
	start("d/4", "alive")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Contains(collect, prune("alive", "no\n", false), "warning: worker outrigger-worker@here polled for tasks at ")
	}, timeout, 50*time.Millisecond)

	// Prune also terminates a run that has continued as new.
	continuing := worker.New(c, "continued", worker.Options{})
	continuing.RegisterWorkflowWithOptions(func(ctx workflow.Context, left int) error {
		if left > 0 {
			return workflow.NewContinueAsNewError(ctx, protocol.RolloutWorkflow, left-1)
		}
		return workflow.Sleep(ctx, time.Hour)
	}, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	require.NoError(t, continuing.Start())
	t.Cleanup(continuing.Stop)
	start("e/5", "continued")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		listed, err := c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: "ExecutionStatus='Running' AND TaskQueue='continued'"})
		require.NoError(collect, err)
		require.Len(collect, listed.GetExecutions(), 1)
		described, err := c.DescribeWorkflowExecution(t.Context(), "sidecarset/e/5", "")
		require.NoError(collect, err)
		newest := described.GetWorkflowExecutionInfo()
		assert.Equal(collect, newest.GetExecution().GetRunId(), listed.GetExecutions()[0].GetExecution().GetRunId())
		assert.NotEqual(collect, newest.GetExecution().GetRunId(), newest.GetFirstRunId())
	}, timeout, 50*time.Millisecond)
	assert.Contains(t, prune("continued", "", true), "ended 1 runs")

	evicts, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "eviction/edge/1", TaskQueue: "evicts"}, protocol.EvictionWorkflow)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Contains(collect, prune("evicts", "no\n", false), evicts.GetID())
	}, timeout, 50*time.Millisecond)
	assert.Contains(t, prune("evicts", "", true), "ended 1 runs")
	assert.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, status("e/5"))

	for _, cluster := range []string{"", "x' OR TaskQueue='y"} {
		require.ErrorContains(t, (&Prune{Client: c, Cluster: cluster}).Run(t.Context()), "is not a UID of a cluster")
	}
}
