package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/temporal"
)

// pollTime is longer than one long poll of an idle worker.
const pollTime = 70 * time.Second

// workers checks that workers poll for workflow tasks, for tasks of activities that select pods, and for tasks
// of activities that patch pods. Temporal also lists the pollers of workers that stopped recently, so workers
// also queries a run.
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
		described, err := r.describe(ctx, tasks.queue, tasks.kind)
		if temporal.IsUnreachable(err) {
			return "", unknownError{r.endpoint() + " does not respond, so nothing is known about the workers"}
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
			return "", fmt.Errorf("%s; workers connect again within ten seconds after a restart of Temporal: %s",
				temporal.NoWorker(does, tasks.queue, r.options.Address, r.options.Namespace), i.podsOf(ctx, "worker"))
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

func (r *runs) describe(ctx context.Context, queue string, kind enums.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
	short, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return r.DescribeTaskQueue(short, queue, kind)
}

// answer is the result of querying the runs of a task queue.
type answer int

const (
	runResponds answer = iota
	runsSilent
	noRuns
)

// ask queries up to two open runs of a task queue, and a completed run if there is no open run. ask queries two
// runs, because a run in the cache of a worker that stopped recently may not respond although other workers
// run.
func (r *runs) ask(ctx context.Context, queue string) (answer, error) {
	open, err := r.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: r.options.Namespace, PageSize: 2,
		Query: fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='Running' AND TaskQueue='%s'", protocol.RolloutWorkflow, queue),
	})
	if err != nil {
		return noRuns, r.explain(err)
	}
	asked := noRuns
	for _, run := range open.GetExecutions() {
		if answer, err := r.query(ctx, run.GetExecution()); err != nil || answer == runResponds {
			return answer, err
		} else if answer == runsSilent {
			asked = runsSilent
		}
	}
	if asked == runsSilent {
		return asked, nil
	}
	completed, err := temporal.CompletedRun(ctx, r.WorkflowService(), r.options.Namespace, queue)
	if err != nil {
		return noRuns, r.explain(err)
	}
	if completed == nil {
		return noRuns, nil
	}
	return r.query(ctx, completed)
}

// query queries a run. If the run was deleted in the meantime, query returns noRuns.
func (r *runs) query(ctx context.Context, run *common.WorkflowExecution) (answer, error) {
	short, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	switch responds, err := temporal.RunResponds(short, r.WorkflowService(), r.options.Namespace, run); {
	case temporal.IsNotFound(err):
		return noRuns, nil
	case err != nil:
		return noRuns, r.explain(err)
	case responds:
		return runResponds, nil
	}
	return runsSilent, nil
}
