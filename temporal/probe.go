package temporal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/deployment/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/api/protocol"
)

// completedPage is the number of completed runs, the newest first, from which CompletedRun selects a run.
const completedPage = 50

// RunReader contains the calls that read a run. A workflowservice.WorkflowServiceClient is a RunReader.
type RunReader interface {
	ListWorkflowExecutions(context.Context, *workflowservice.ListWorkflowExecutionsRequest, ...grpc.CallOption) (*workflowservice.ListWorkflowExecutionsResponse, error)
	DescribeWorkflowExecution(context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error)
	QueryWorkflow(context.Context, *workflowservice.QueryWorkflowRequest, ...grpc.CallOption) (*workflowservice.QueryWorkflowResponse, error)
}

// CompletedRun returns a completed run that any worker of the task queue can replay for a query, or nil.
// CompletedRun selects the run with the shortest history, because a worker replays the history for each query.
// CompletedRun skips runs that are pinned to a version, because the workers of this version may have stopped
// (SPEC §8.10.2).
func CompletedRun(ctx context.Context, reader RunReader, namespace, taskQueue string) (*common.WorkflowExecution, error) {
	answer, err := reader.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: namespace, PageSize: completedPage,
		Query: fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='Completed' AND TaskQueue='%s'", protocol.RolloutWorkflow, taskQueue),
	})
	if err != nil {
		return nil, fmt.Errorf("list completed runs: %w", err)
	}
	runs := answer.GetExecutions()
	slices.SortStableFunc(runs, func(a, b *workflow.WorkflowExecutionInfo) int {
		return cmp.Compare(a.GetHistoryLength(), b.GetHistoryLength())
	})
	for _, run := range runs {
		described, err := reader.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{Namespace: namespace, Execution: run.GetExecution()})
		switch {
		case IsNotFound(err): // the retention period of the run has expired
		case err != nil:
			return nil, fmt.Errorf("describe run %s: %w", run.GetExecution().GetWorkflowId(), err)
		case PinnedVersion(described.GetWorkflowExecutionInfo().GetVersioningInfo()) == nil:
			return run.GetExecution(), nil
		}
	}
	return nil, nil
}

// RunResponds reports whether a worker answers a query of a run. If RunResponds returns an error, for example
// about a deleted run, the state of the workers is unknown.
func RunResponds(ctx context.Context, reader RunReader, namespace string, run *common.WorkflowExecution) (bool, error) {
	_, err := reader.QueryWorkflow(ctx, &workflowservice.QueryWorkflowRequest{
		Namespace: namespace, Execution: run, Query: &query.WorkflowQuery{QueryType: protocol.StatusQuery},
	})
	_, failed := errors.AsType[*serviceerror.QueryFailed](err)
	switch {
	case err == nil, failed: // a worker answered
		return true, nil
	case IsSilent(ctx, err):
		return false, nil
	}
	return false, fmt.Errorf("query run %s: %w", run.GetWorkflowId(), err)
}

// PinnedVersion returns the version to which a run is pinned, or nil. Temporal sends the tasks of an unpinned
// run to the current version.
func PinnedVersion(info *workflow.WorkflowExecutionVersioningInfo) *deployment.WorkerDeploymentVersion {
	override := info.GetVersioningOverride()
	switch {
	case override.GetPinned() != nil:
		return override.GetPinned().GetVersion()
	case override.GetAutoUpgrade(), info.GetBehavior() != enums.VERSIONING_BEHAVIOR_PINNED:
		return nil
	}
	return info.GetDeploymentVersion()
}
