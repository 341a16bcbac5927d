package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/temporal"
)

// pollTime is longer than one poll of an idle worker.
const pollTime = 70 * time.Second

// workers checks that workers poll for tasks of workflows, of activities that select pods, and of
// activities that patch pods. Temporal also lists the last poll of a worker that ended since, so
// a run has to respond, too.
func (i *installation) workers(ctx context.Context) (string, error) {
	queue, err := kube.TaskQueue(ctx, i, i.taskQueue)
	if err != nil {
		return "", unknownError{err.Error()}
	}
	r, err := i.shared.connect()
	if err != nil {
		return "", err
	}
	defer r.Close()
	age, polling := pollTime, map[string]bool{}
	for _, tasks := range []struct {
		queue string
		kind  enums.TaskQueueType
	}{
		{queue, enums.TASK_QUEUE_TYPE_WORKFLOW},
		{queue, enums.TASK_QUEUE_TYPE_ACTIVITY},
		{protocol.WriteTaskQueue(queue), enums.TASK_QUEUE_TYPE_ACTIVITY},
	} {
		described, err := r.DescribeTaskQueue(ctx, tasks.queue, tasks.kind)
		if temporal.IsUnreachable(err) {
			return "", unknownError{r.endpoint() + " does not answer, so nothing is known about the workers"}
		}
		if err != nil {
			return "", r.explain(err)
		}
		found := 0
		for _, poller := range described.GetPollers() {
			if since := i.shared.now().Sub(poller.GetLastAccessTime().AsTime()); since < pollTime {
				age = max(min(age, since), 0)
				polling[poller.GetIdentity()] = true
				found++
			}
		}
		if found == 0 {
			does := "polls for " + strings.ToLower(tasks.kind.String()) + " tasks in"
			return "", fmt.Errorf("%s: %s", temporal.NoWorker(does, tasks.queue, r.options.Address, r.options.Namespace), i.podsOf(ctx, "worker"))
		}
	}
	last, names := fmt.Sprintf("last poll %s ago", age.Round(time.Second)), strings.Join(slices.Sorted(maps.Keys(polling)), ", ")
	switch answer, err := r.ask(ctx, queue); {
	case err != nil:
		return "", unknownError{fmt.Sprintf("%s (%s), but whether runs respond is not known: %v", last, names, err)}
	case answer == runsSilent:
		return "", fmt.Errorf("%s: %s", temporal.NoWorker("claims the tasks in", queue, r.options.Address, r.options.Namespace), i.podsOf(ctx, "worker"))
	case answer == noRuns:
		return last + ": " + names + "; no run can be queried yet, so these workers may have ended since", nil
	}
	return "a run responds; " + last + ": " + names, nil
}

// answer is what the queried runs of a task queue show about its workers.
type answer int

const (
	runResponds answer = iota
	runsSilent
	noRuns
)

// ask queries runs of a task queue: up to two open runs, or the completed run with the shortest history,
// which a worker replays. Right after the end of one worker, its open runs may not respond, though other
// workers run.
func (r *runs) ask(ctx context.Context, queue string) (answer, error) {
	asked := noRuns
	for _, list := range []struct {
		status     string
		page, most int
	}{{"Running", 2, 2}, {"Completed", 50, 1}} {
		listed, err := r.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: r.options.Namespace, PageSize: int32(list.page),
			Query: fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='%s' AND TaskQueue='%s'", protocol.RolloutWorkflow, list.status, queue),
		})
		if err != nil {
			return asked, r.explain(err)
		}
		found := listed.GetExecutions()
		slices.SortStableFunc(found, func(a, b *workflow.WorkflowExecutionInfo) int {
			return cmp.Compare(a.GetHistoryLength(), b.GetHistoryLength())
		})
		for _, run := range found[:min(len(found), list.most)] {
			short, cancel := context.WithTimeout(ctx, readTimeout)
			_, err := r.QueryWorkflow(short, run.GetExecution().GetWorkflowId(), run.GetExecution().GetRunId(), protocol.StatusQuery)
			cancel()
			switch _, failed := errors.AsType[*serviceerror.QueryFailed](err); {
			case err == nil, failed: // a worker answered
				return runResponds, nil
			case temporal.IsNotFound(err): // the run was removed since
			case !temporal.IsSilent(err):
				return asked, r.explain(err)
			default:
				asked = runsSilent
			}
		}
		if asked == runsSilent {
			break
		}
	}
	return asked, nil
}
