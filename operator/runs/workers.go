package runs

import (
	"context"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/temporal"
)

// selectInterval is the time between two searches for a completed run.
const selectInterval = 10 * time.Second

// Workers returns the fault of the workers, even while no rollout is in progress. Workers queries a completed
// run, because any worker can answer the query. If there is no completed run, Workers only reads the list of
// pollers, in which Temporal may keep a poller for five minutes after the worker has stopped. An error means
// that the state of the workers is unknown.
//
// Only one goroutine may call Workers at a time.
func (d *diagnoser) Workers(ctx context.Context) (Fault, error) {
	reader := runReader{d.connection}
	if d.completed == nil && d.clock.Since(d.selectedAt) >= selectInterval {
		d.completed, d.selectErr = temporal.CompletedRun(ctx, reader, d.namespace, d.taskQueue)
		// After an outage of Temporal, the next call searches again immediately.
		if !temporal.IsUnreachable(d.selectErr) {
			d.selectedAt = d.clock.Now()
		}
	}
	if d.selectErr != nil {
		return Fault{}, d.selectErr
	}
	silent := false
	if d.completed != nil {
		responds, err := temporal.RunResponds(ctx, reader, d.namespace, d.completed)
		switch {
		case temporal.IsNotFound(err): // the retention period of the run has expired
			d.completed = nil
			return Fault{}, err
		case err != nil || responds:
			return Fault{}, err
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

// runReader makes calls through the connection, which counts and limits the calls.
type runReader struct{ connection *connection }

func (r runReader) ListWorkflowExecutions(ctx context.Context, request *workflowservice.ListWorkflowExecutionsRequest, _ ...grpc.CallOption) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return call(ctx, r.connection, listCall, r.connection.client.WorkflowService().ListWorkflowExecutions, request)
}

func (r runReader) DescribeWorkflowExecution(ctx context.Context, request *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return call(ctx, r.connection, "DescribeWorkflowExecution", r.connection.client.WorkflowService().DescribeWorkflowExecution, request)
}

func (r runReader) QueryWorkflow(ctx context.Context, request *workflowservice.QueryWorkflowRequest, _ ...grpc.CallOption) (*workflowservice.QueryWorkflowResponse, error) {
	return call(ctx, r.connection, "QueryWorkflow", r.connection.client.WorkflowService().QueryWorkflow, request)
}
