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
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/temporal"
)

// pollTime is longer than one poll of an idle worker.
const pollTime = 70 * time.Second

// workers checks that workers poll for tasks of workflows, of activities that select pods, and of
// activities that patch pods. Temporal also lists the last poll of a worker that ended since, so
// the open runs have to respond, too.
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
			return "", fmt.Errorf("no worker polls task queue %s for %s tasks, though Temporal answers: %s", tasks.queue, strings.ToLower(tasks.kind.String()), i.podsOf(ctx, "worker"))
		}
	}
	last, names := fmt.Sprintf("last poll %s ago", age.Round(time.Second)), strings.Join(slices.Sorted(maps.Keys(polling)), ", ")
	silent, err := r.silent(ctx, queue)
	switch {
	case err != nil:
		return "", unknownError{fmt.Sprintf("%s (%s), but whether open runs respond is not known: %v", last, names, err)}
	case silent != "":
		return "", fmt.Errorf("the run of SidecarSet %s does not respond; %s (%s): %s", silent, last, names, i.podsOf(ctx, "worker"))
	}
	return last + ": " + names, nil
}

// silent queries up to two open runs of a task queue. It returns the SidecarSet of the first one
// if none responds. Right after the end of one worker, its runs may not respond, though other
// workers run.
func (r *runs) silent(ctx context.Context, queue string) (set string, err error) {
	open, err := r.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: r.options.Namespace, PageSize: 2,
		Query: fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='Running' AND TaskQueue='%s'", protocol.RolloutWorkflow, queue),
	})
	if err != nil {
		return "", r.explain(err)
	}
	for _, run := range open.GetExecutions() {
		short, cancel := context.WithTimeout(ctx, readTimeout)
		_, err := r.QueryWorkflow(short, run.GetExecution().GetWorkflowId(), run.GetExecution().GetRunId(), protocol.StatusQuery)
		cancel()
		switch {
		case err == nil:
			return "", nil
		case temporal.IsNotFound(err): // the run was removed since
		case !isSilent(err):
			return "", r.explain(err)
		case set == "":
			fields := run.GetSearchAttributes().GetIndexedFields()
			_ = converter.GetDefaultDataConverter().FromPayload(fields[protocol.SidecarSetAttribute], &set)
			set = cmp.Or(set, run.GetExecution().GetWorkflowId())
		}
	}
	return set, nil
}

// isSilent reports whether a query failed because no worker responds for the run. Soon after the
// last poll, Temporal rejects queries. It also rejects them after failed attempts of the workflow task.
func isSilent(err error) bool {
	_, unpolled := errors.AsType[*serviceerror.FailedPrecondition](err)
	_, failing := errors.AsType[*serviceerror.WorkflowNotReady](err)
	return unpolled || failing || temporal.IsUnreachable(err)
}
