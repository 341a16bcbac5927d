package temporal

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/output"
)

// pruneReason is the reason of each termination.
const pruneReason = "outrigger temporal prune: its cluster is gone"

// Prune terminates the open runs of a deleted cluster. Without workers, these runs would stay
// open forever.
type Prune struct {
	Client    client.Client
	Namespace string
	// Cluster is the task queue of the cluster. By default, the task queue is the UID of namespace
	// kube-system.
	Cluster string
	// Yes terminates the runs without confirmation. Without Yes, Prune reads the confirmation
	// from In.
	Yes bool
	In  io.Reader
	Out io.Writer
}

// Run lists the open runs and terminates them after confirmation. A run that completes in the
// meantime is not an error.
func (p *Prune) Run(ctx context.Context) error {
	if p.Cluster == "" || strings.ContainsAny(p.Cluster, `'"\`) {
		return fmt.Errorf("%q is not a UID of a cluster: kubectl get namespace kube-system -o jsonpath={.metadata.uid} shows the UID", p.Cluster)
	}
	runs, err := p.list(ctx)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		say(p.Out, "no open runs of cluster %s in namespace %s", p.Cluster, p.Namespace)
		return nil
	}
	if err := p.show(runs); err != nil {
		return err
	}
	if err := p.warn(ctx); err != nil {
		return err
	}
	agreed, err := p.ask(len(runs))
	if err != nil {
		return err
	}
	if !agreed {
		say(p.Out, "nothing was ended")
		return nil
	}
	for i, run := range runs {
		if err := p.end(ctx, run.GetExecution()); err != nil {
			return fmt.Errorf("end run %s (%d of %d are ended): %w", run.GetExecution().GetWorkflowId(), i, len(runs), Explained(err))
		}
	}
	say(p.Out, "ended %d runs", len(runs))
	return nil
}

func (p *Prune) list(ctx context.Context) (runs []*workflow.WorkflowExecutionInfo, err error) {
	var page []byte
	for {
		answer, err := call(ctx, p.Client.WorkflowService().ListWorkflowExecutions, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: p.Namespace, NextPageToken: page,
			Query: fmt.Sprintf("WorkflowType IN ('%s', '%s') AND ExecutionStatus='Running' AND TaskQueue='%s'", protocol.RolloutWorkflow, protocol.EvictionWorkflow, p.Cluster),
		})
		if err != nil {
			return nil, fmt.Errorf("list the open runs in namespace %s: %w", p.Namespace, Explained(err))
		}
		runs = append(runs, answer.GetExecutions()...)
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return runs, nil
		}
	}
}

func (p *Prune) show(runs []*workflow.WorkflowExecutionInfo) error {
	table := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "RUN\tSTARTED\tGENERATION\tPHASE")
	for _, run := range runs {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", run.GetExecution().GetWorkflowId(), run.GetStartTime().AsTime().Format(time.RFC3339),
			attribute(run, protocol.GenerationAttribute), attribute(run, protocol.RolloutPhaseAttribute))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the list of runs: %w", err)
	}
	return nil
}

// attribute returns a search attribute as text, or "-" if the run lacks the search attribute.
func attribute(run *workflow.WorkflowExecutionInfo, name string) string {
	payload := run.GetSearchAttributes().GetIndexedFields()[name]
	if payload == nil {
		return "-"
	}
	return strings.Trim(converter.GetDefaultDataConverter().ToString(payload), `"`)
}

// warn prints a warning for each worker that polls the task queue of the cluster.
func (p *Prune) warn(ctx context.Context) error {
	answer, err := p.Client.DescribeTaskQueue(ctx, p.Cluster, enums.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return fmt.Errorf("look for workers of cluster %s: %w", p.Cluster, Explained(err))
	}
	for _, poller := range answer.GetPollers() {
		say(p.Out, "warning: worker %s polled for tasks at %s; if the cluster still exists, its operator starts the runs again",
			poller.GetIdentity(), poller.GetLastAccessTime().AsTime().Format(time.RFC3339))
	}
	return nil
}

func (p *Prune) ask(runs int) (agreed bool, err error) {
	if p.Yes {
		return true, nil
	}
	return output.Confirm(p.In, p.Out, fmt.Sprintf("End %d runs in namespace %s?", runs, p.Namespace))
}

// end terminates the open run of the workflow, if the open run is the listed run or a continuation of the
// listed run. A missing run is not an error.
func (p *Prune) end(ctx context.Context, run *common.WorkflowExecution) error {
	// A list of runs does not contain the first run id.
	listed, err := p.Client.DescribeWorkflowExecution(ctx, run.GetWorkflowId(), run.GetRunId())
	if err == nil {
		err = p.Client.TerminateWorkflowWithOptions(ctx, client.TerminateWorkflowOptions{
			WorkflowID: run.GetWorkflowId(), FirstExecutionRunID: listed.GetWorkflowExecutionInfo().GetFirstRunId(), Reason: pruneReason,
		})
	}
	if IsNotFound(err) {
		return nil
	}
	return err
}
