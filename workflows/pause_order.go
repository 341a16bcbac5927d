package workflows

import (
	"slices"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// Interceptors returns the interceptors that a worker or a replayer needs for the workflows Rollout and Eviction.
func Interceptors() []interceptor.WorkerInterceptor {
	return []interceptor.WorkerInterceptor{&ordering{}}
}

type ordering struct {
	interceptor.WorkerInterceptorBase
}

func (*ordering) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &pauseOrder{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

// pauseOrder records the order in which pauses and resumes reached a run. The channels do not
// contain this order, because each signal name has its own channel.
type pauseOrder struct {
	interceptor.WorkflowInboundInterceptorBase
	// names lists the names of the signals that the run has not read, in the order of the server.
	names []string
}

type pauseOrderKey struct{}

// ExecuteWorkflow adds the order to the context of the run.
func (o *pauseOrder) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	return o.Next.ExecuteWorkflow(workflow.WithValue(ctx, pauseOrderKey{}, o), in)
}

// HandleSignal records the name of each pause and resume. The SDK calls HandleSignal for each signal, in the
// order of the history.
func (o *pauseOrder) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	if err := o.Next.HandleSignal(ctx, in); err != nil {
		return err
	}
	if slices.Contains([]string{protocol.PauseSignal, protocol.ResumeSignal}, in.SignalName) {
		o.names = append(o.names, in.SignalName)
	}
	return nil
}

// pauseOrderOf returns the order of the pauses and resumes of the run. If the worker lacks the Interceptors, the
// order is unknown, so pauseOrderOf panics, which fails the workflow task.
func pauseOrderOf(ctx workflow.Context) *pauseOrder {
	order, ok := ctx.Value(pauseOrderKey{}).(*pauseOrder)
	if !ok {
		panic("the worker lacks workflows.Interceptors()")
	}
	return order
}
