package temporal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
)

// pruneReason is shown with each run that was ended.
const pruneReason = "outrigger temporal prune: its cluster is gone"

// Prune ends the open runs of a cluster that is gone: nobody takes up their tasks any more,
// so that they would stay open for ever.
type Prune struct {
	Client    client.Client
	Namespace string
	// Cluster is the task queue of the cluster: the UID of its namespace kube-system.
	Cluster string
	// Yes ends the runs without a question. The answer to it is read from In.
	Yes bool
	In  io.Reader
	Out io.Writer
	// Identity is that of who ends the runs.
	Identity string
}

// Run lists the open runs, and ends them if that is wanted. Runs that ended by themselves
// in the meantime count as ended.
func (p *Prune) Run(ctx context.Context) error {
	if p.Cluster == "" || strings.ContainsAny(p.Cluster, `'"\`) {
		return fmt.Errorf("%q is no UID of a cluster: kubectl get namespace kube-system -o jsonpath={.metadata.uid} shows it", p.Cluster)
	}
	runs, err := p.list(ctx)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return p.say("no open runs of cluster %s in namespace %s", p.Cluster, p.Namespace)
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
		return p.say("nothing was ended")
	}
	for i, run := range runs {
		if err := p.end(ctx, run); err != nil {
			return fmt.Errorf("end run %s (%d of %d are ended): %w", run.GetExecution().GetWorkflowId(), i, len(runs), explained(err))
		}
	}
	return p.say("ended %d runs", len(runs))
}

func (p *Prune) list(ctx context.Context) (runs []*workflow.WorkflowExecutionInfo, err error) {
	var page []byte
	for {
		short, cancel := context.WithTimeout(ctx, callTimeout)
		answer, err := p.Client.WorkflowService().ListWorkflowExecutions(short, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: p.Namespace, NextPageToken: page,
			Query: fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='Running' AND TaskQueue='%s'", protocol.RolloutWorkflow, p.Cluster),
		})
		cancel()
		if err != nil {
			return nil, fmt.Errorf("list the open runs in namespace %s: %w", p.Namespace, explained(err))
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

// attribute is a search attribute as text; - if the run has none of that name.
func attribute(run *workflow.WorkflowExecutionInfo, name string) string {
	payload := run.GetSearchAttributes().GetIndexedFields()[name]
	if payload == nil {
		return "-"
	}
	return strings.Trim(converter.GetDefaultDataConverter().ToString(payload), `"`)
}

// warn names the workers that the cluster seems to have.
func (p *Prune) warn(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := p.Client.WorkflowService().DescribeTaskQueue(short, &workflowservice.DescribeTaskQueueRequest{
		Namespace: p.Namespace, TaskQueue: &taskqueue.TaskQueue{Name: p.Cluster}, TaskQueueType: enums.TASK_QUEUE_TYPE_WORKFLOW,
	})
	if err != nil {
		return fmt.Errorf("look for workers of cluster %s: %w", p.Cluster, explained(err))
	}
	for _, poller := range answer.GetPollers() {
		err := p.say("warning: worker %s asked for work at %s: is the cluster gone? If it lives, its operator starts the runs again.",
			poller.GetIdentity(), poller.GetLastAccessTime().AsTime().Format(time.RFC3339))
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Prune) ask(runs int) (agreed bool, err error) {
	if p.Yes {
		return true, nil
	}
	_, _ = fmt.Fprintf(p.Out, "End %d runs in namespace %s? (yes or no) ", runs, p.Namespace)
	answer, err := bufio.NewReader(p.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	return strings.TrimSpace(answer) == "yes", nil
}

// end terminates whatever run the workflow has now, if it goes back to the one that was
// listed.
func (p *Prune) end(ctx context.Context, run *workflow.WorkflowExecutionInfo) error {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Lists do not say which run was the first.
	listed, err := p.Client.WorkflowService().DescribeWorkflowExecution(short, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: p.Namespace, Execution: run.GetExecution(),
	})
	if err == nil {
		_, err = p.Client.WorkflowService().TerminateWorkflowExecution(short, &workflowservice.TerminateWorkflowExecutionRequest{
			Namespace: p.Namespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: run.GetExecution().GetWorkflowId()},
			FirstExecutionRunId: listed.GetWorkflowExecutionInfo().GetFirstRunId(), Reason: pruneReason, Identity: p.Identity,
		})
	}
	var ended *serviceerror.NotFound
	if errors.As(err, &ended) {
		return nil
	}
	return err
}

func (p *Prune) say(format string, values ...any) error {
	if _, err := fmt.Fprintf(p.Out, format+"\n", values...); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
