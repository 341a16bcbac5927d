package runs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// pickupTimeout is the time that a task waits before the workers count as unavailable.
	// pollerGracePeriod is the time that a queue may be without pollers, for example after a
	// restart of Temporal.
	pickupTimeout     = 8 * time.Second
	pollerGracePeriod = 20 * time.Second
	// stopMargin is the time after the scheduling of a task in which a poll does not prove that the worker
	// still runs. Temporal also records the end of a poll, and a worker that stops ends its poll.
	stopMargin = 2 * time.Second
	// attemptGracePeriod is the minimum duration of an attempt after several failed attempts. Only a longer
	// attempt ends the failure.
	attemptGracePeriod = 15 * time.Second
	// failingAttempts is the number of the first attempt with which a task counts as failing.
	failingAttempts = 3
)

// symptoms is the state of the pending tasks of a run.
type symptoms struct {
	// waiting is a task that no worker has picked up within pickupTimeout.
	waiting *task
	// failing names the task that fails. cause quotes the failure.
	failing, cause string
	// paused is an activity that a user or a rule of Temporal has paused.
	paused *workflow.PendingActivityInfo
	// unsure is set while it is too early to determine whether there is a fault. idle is set if no task is
	// pending.
	unsure, idle bool
}

// task is a task that waits for a worker.
type task struct {
	queue     string
	kind      enums.TaskQueueType
	scheduled time.Time
}

// TaskAges records when the operator first observed each task of a run. TaskAges uses the clock of the
// operator, because the clock of Temporal may differ.
type TaskAges struct{ since, current map[string]time.Time }

// age records that key was observed now, and returns the time since the first observation.
func (a *TaskAges) age(key string, now time.Time) time.Duration {
	first, ok := a.since[key]
	if !ok {
		first = now
	}
	a.current[key] = first
	return now.Sub(first)
}

// prune removes the tasks that the last examination did not observe.
func (a *TaskAges) prune() { a.since, a.current = a.current, nil }

// examine reads the symptoms from the pending tasks of an open run.
func (a *TaskAges) examine(r *Run, queue string, now time.Time) symptoms {
	a.current = map[string]time.Time{}
	activities := slices.DeleteFunc(slices.Clone(r.Activities), isNotDue)
	found := symptoms{idle: r.Task == nil && len(activities) == 0}
	if r.Task != nil {
		a.examineTask(&found, r.Task, queue, now)
	}
	for _, activity := range activities {
		a.examineActivity(&found, activity, queue, now)
	}
	return found
}

// isNotDue reports whether pending is a measurement of a gate that waits until its next attempt is due.
// Such a wait is not a symptom of a fault.
func isNotDue(pending *workflow.PendingActivityInfo) bool {
	return pending.NextAttemptScheduleTime != nil && pending.GetLastFailure().GetApplicationFailureInfo().GetType() == protocol.GateNotDue
}

func (a *TaskAges) examineTask(found *symptoms, pending *workflow.PendingWorkflowTaskInfo, queue string, now time.Time) {
	switch {
	case pending.Attempt >= failingAttempts:
		found.failing = "the workflow task of the run"
	case pending.State == enums.PENDING_WORKFLOW_TASK_STATE_SCHEDULED:
		a.wait(found, "workflow task", &task{queue, enums.TASK_QUEUE_TYPE_WORKFLOW, pending.ScheduledTime.AsTime()}, now)
	case pending.Attempt > 1:
		found.unsure = true
	}
}

func (a *TaskAges) examineActivity(found *symptoms, pending *workflow.PendingActivityInfo, queue string, now time.Time) {
	key := fmt.Sprintf("activity %s, attempt %d, %s", pending.ActivityId, pending.Attempt, pending.State)
	failing := pending.Attempt >= failingAttempts && pending.LastFailure != nil
	switch {
	case pending.State == enums.PENDING_ACTIVITY_STATE_STARTED:
		found.unsure = found.unsure || failing && a.age(key, now) < attemptGracePeriod
		return
	case pending.State == enums.PENDING_ACTIVITY_STATE_PAUSED, pending.State == enums.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED:
		found.paused = pending
		return
	case pending.State != enums.PENDING_ACTIVITY_STATE_SCHEDULED:
		return
	case pending.NextAttemptScheduleTime == nil:
		if named := pending.GetActivityOptions().GetTaskQueue().GetName(); named != "" {
			queue = named
		}
		a.wait(found, key, &task{queue, enums.TASK_QUEUE_TYPE_ACTIVITY, pending.ScheduledTime.AsTime()}, now)
	}
	if failing {
		found.failing, found.cause = "activity "+pending.GetActivityType().GetName(), pending.LastFailure.Message
	} else if pending.Attempt > 1 {
		found.unsure = true
	}
}

func (a *TaskAges) wait(found *symptoms, key string, pending *task, now time.Time) {
	if a.age(fmt.Sprintf("%s of %s", key, pending.scheduled), now) >= pickupTimeout {
		found.waiting = pending
	} else {
		found.unsure = true
	}
}

// diagnoser finds the reason why an open run makes no progress.
type diagnoser struct {
	*connection
	taskQueue string
	// mu guards queues, which caches descriptions of task queues.
	mu     sync.Mutex
	queues map[queueKey]taskQueue
	// completed is the completed run that Workers queries. selectedAt is the time of the last search for a
	// completed run, and selectErr is the error of this search.
	completed  *common.WorkflowExecution
	selectedAt time.Time
	selectErr  error
}

// Diagnose returns the fault of the workers that an open run shows. before is the last known fault. sure is
// false while it is too early to determine whether there is a fault.
func (d *diagnoser) Diagnose(ctx context.Context, r *Run, ages *TaskAges, before Fault) (found Fault, sure bool, err error) {
	now := d.clock.Now()
	seen := ages.examine(r, d.taskQueue, now)
	defer ages.prune()
	switch {
	case seen.paused != nil:
		return d.activityPaused(r.WorkflowID, seen.paused), true, nil
	case seen.waiting != nil:
		queue, err := d.describe(ctx, seen.waiting.queue, seen.waiting.kind)
		if err != nil {
			return Fault{}, false, err
		}
		found := d.faultOfWaiting(queue, seen.waiting, r.pinned)
		// Without a fault, the task waits because the workers are busy.
		return found, found != Fault{}, nil
	case seen.failing != "":
		// The next attempt of a failed task may be waiting for a worker now.
		return rolloutFailing(seen.failing, seen.cause), !seen.unsure || before.Reason != v1alpha1.ReasonWorkerUnavailable, nil
	case seen.unsure || !seen.idle:
		return Fault{}, !seen.unsure, nil
	}
	queue, err := d.describe(ctx, d.taskQueue, enums.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return Fault{}, false, err
	}
	found = d.faultOfIdle(queue, r.pinned)
	if found != (Fault{}) && ages.age("no pollers", now) < pollerGracePeriod {
		return Fault{}, false, nil
	}
	return found, true, nil
}

// faultOfWaiting returns the fault if a task has waited for a worker too long. If a worker polls the queue
// later than stopMargin after the task was scheduled, the worker should have received the task. Temporal does
// not route the task to workers of other versions.
func (d *diagnoser) faultOfWaiting(queue *taskQueue, waiting *task, pinned *version) Fault {
	wanted, polling := queue.wanted(pinned), queue.polledBy(waiting.scheduled)
	missing, others := without(wanted, polling), without(polling, wanted)
	switch taken := polledSince(queue.of(wanted), waiting.scheduled.Add(stopMargin)); {
	case !taken && len(others) > 0:
		return d.otherVersions(waiting.queue, wanted, others, pinned != nil)
	case !taken:
		return d.workerUnavailable(waiting.queue, len(queue.pollers) == 0)
	case len(missing) > 0:
		return d.otherVersions(waiting.queue, missing, polling, false)
	}
	return Fault{}
}

// faultOfIdle returns the fault of a run without pending tasks. The run has a fault if no worker that may
// receive the next task polls the task queue.
func (d *diagnoser) faultOfIdle(queue *taskQueue, pinned *version) Fault {
	wanted := queue.wanted(pinned)
	switch polling := queue.polledBy(time.Time{}); {
	case len(queue.of(wanted)) > 0:
		return Fault{}
	case len(polling) > 0:
		return d.otherVersions(d.taskQueue, wanted, polling, pinned != nil)
	}
	return d.workerUnavailable(d.taskQueue, true)
}

func (d *diagnoser) workerUnavailable(queue string, noPollers bool) Fault {
	does := "claims the tasks in"
	if noPollers {
		does = "polls"
	}
	return Fault{v1alpha1.ReasonWorkerUnavailable, temporal.NoWorker(does, queue, d.address, d.namespace)}
}

// otherVersions returns the fault of a task queue that workers of the versions in wanted do not poll. The
// workers that poll have the versions in polling, which receive no tasks of the run.
func (d *diagnoser) otherVersions(queue string, wanted, polling []version, pinned bool) Fault {
	kind, remedy := "current", "make one of the other versions the current version (temporal worker deployment set-current-version)"
	if pinned {
		kind, remedy = "pinned", "move the run (temporal workflow update-options)"
	}
	return Fault{v1alpha1.ReasonWorkerUnavailable, fmt.Sprintf(
		"no worker of the %s version (%s) claims the tasks in task queue %s (Temporal at %s, namespace %s); only workers of other versions poll the task queue (%s): start workers of that version, or %s",
		kind, listed(wanted), queue, d.address, d.namespace, listed(polling), remedy)}
}

// batchResult contains the pods in the result of a batch of upgrades, resets or conditions. The
// results of other activities have none of these fields.
type batchResult struct {
	Written  []protocol.WrittenPod  `json:"written"`
	Reset    int                    `json:"reset"`
	Rejected []protocol.RejectedPod `json:"failed"`
}

// faultOfWrites returns a fault if all writes of the newest batch were rejected. events lists the newest event
// first. The activity of the batch does not fail, because a rejected pod must not stop the upgrade of other
// pods.
func faultOfWrites(payloads converter.DataConverter, events []*history.HistoryEvent) Fault {
	for _, event := range events {
		var batch batchResult
		result := event.GetActivityTaskCompletedEventAttributes().GetResult()
		if err := payloads.FromPayloads(result, &batch); err != nil || len(batch.Written)+len(batch.Rejected)+batch.Reset == 0 {
			continue
		}
		if len(batch.Written)+batch.Reset > 0 {
			return Fault{}
		}
		first := slices.MinFunc(batch.Rejected, func(a, b protocol.RejectedPod) int {
			return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		})
		return rolloutFailing("the write of pods such as "+first.PodReference.String(), first.Reason)
	}
	return Fault{}
}
