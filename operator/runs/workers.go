package runs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// completedPage is the number of the newest completed runs from which one is selected.
	completedPage = 50
	// selectInterval is the time between two lists while there is no completed run.
	selectInterval = 10 * time.Second
)

// Workers returns the fault of the workers, also while no rollout is in progress. For this, it queries a
// completed run: any worker can answer, and Temporal still lists the last poll of a worker that ended.
// While there is no completed run, Workers returns a fault only if Temporal lists no poller, which may
// take five minutes. An error means that nothing is known about the workers.
//
// Only one goroutine may call Workers at a time.
func (d *diagnoser) Workers(ctx context.Context) (Fault, error) {
	if err := d.selectCompleted(ctx); err != nil {
		return Fault{}, err
	}
	silent := false
	if d.completed != nil {
		_, err := call(ctx, d.connection, "QueryWorkflow", d.client.WorkflowService().QueryWorkflow, &workflowservice.QueryWorkflowRequest{
			Namespace: d.namespace, Execution: d.completed, Query: &query.WorkflowQuery{QueryType: protocol.StatusQuery},
		})
		switch {
		case err == nil, is[*serviceerror.QueryFailed](err): // a worker answered
			return Fault{}, nil
		case temporal.IsNotFound(err): // the retention of the run is over
			d.completed = nil
			return Fault{}, nil
		case !temporal.IsSilent(err):
			return Fault{}, fmt.Errorf("query run %s: %w", d.completed.GetWorkflowId(), err)
		}
		silent = true
	}
	queue, err := d.describe(ctx, d.taskQueue, enums.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return Fault{}, err
	}
	found := d.faultOfIdle(queue, nil)
	if silent && found == (Fault{}) {
		return d.workerUnavailable(d.taskQueue, false), nil
	}
	return found, nil
}

// selectCompleted selects the completed run with the shortest history, because a worker replays the
// history for each query. It leaves out runs that are pinned to a version, whose workers may have ended.
func (d *diagnoser) selectCompleted(ctx context.Context) error {
	if d.completed != nil || d.clock.Since(d.selectedAt) < selectInterval {
		return nil
	}
	answer, err := call(ctx, d.connection, "ListWorkflowExecutions", d.client.WorkflowService().ListWorkflowExecutions, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: d.namespace, PageSize: completedPage,
		Query: fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='Completed' AND TaskQueue='%s'", protocol.RolloutWorkflow, d.taskQueue),
	})
	if err != nil {
		return fmt.Errorf("list completed runs: %w", err)
	}
	runs := answer.GetExecutions()
	slices.SortStableFunc(runs, func(a, b *workflow.WorkflowExecutionInfo) int {
		return cmp.Compare(a.GetHistoryLength(), b.GetHistoryLength())
	})
	for _, run := range runs {
		pinned, err := d.isPinned(ctx, run.GetExecution())
		if err != nil {
			return err
		}
		if !pinned {
			d.completed = run.GetExecution()
			break
		}
	}
	d.selectedAt = d.clock.Now()
	return nil
}

// isPinned reports whether a run is pinned to a version of the workers. It returns true for a run that
// does not exist any more.
func (d *diagnoser) isPinned(ctx context.Context, run *common.WorkflowExecution) (bool, error) {
	description, err := call(ctx, d.connection, "DescribeWorkflowExecution", d.client.WorkflowService().DescribeWorkflowExecution,
		&workflowservice.DescribeWorkflowExecutionRequest{Namespace: d.namespace, Execution: run})
	switch {
	case temporal.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("describe run %s: %w", run.GetWorkflowId(), err)
	}
	return pinnedVersion(description.GetWorkflowExecutionInfo().GetVersioningInfo()) != nil, nil
}
