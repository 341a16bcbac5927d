package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/workflows"
)

// Every run that the tests before this one made, however it was interrupted,
// replays. Files are tested in the order of their names.
func TestHistoriesOfAllRunsReplay(t *testing.T) {
	list, err := stack.engine.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: cluster.TemporalNamespace})
	require.NoError(t, err)
	require.NotEmpty(t, list.Executions)
	replayer := worker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(workflows.Rollout, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	for _, run := range list.Executions {
		err := replayer.ReplayWorkflowExecution(t.Context(), stack.engine.WorkflowService(), nil, cluster.TemporalNamespace,
			workflow.Execution{ID: run.Execution.WorkflowId, RunID: run.Execution.RunId})
		assert.NoError(t, err, "%s %s", run.Execution.WorkflowId, run.Status)
	}
}
