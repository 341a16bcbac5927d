package operator

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// pickupTimeout is how long a task waits for a worker before there counts as none;
	// pollerGracePeriod is how long a queue may be without pollers, such as after a
	// restart of Temporal.
	pickupTimeout     = 8 * time.Second
	pollerGracePeriod = 20 * time.Second
	// attemptGracePeriod is how long an attempt has to last, after several that
	// failed, to count as good.
	attemptGracePeriod = 15 * time.Second
	// failingAttempts is the attempt from which on a task counts as failing.
	failingAttempts = 3
	// minMessageAge is how long the message about a failure stays.
	minMessageAge = time.Minute
	// maxCauseLength bounds what is quoted of a failure, in characters.
	maxCauseLength = 300
)

// fault is what is wrong with the workers of a run, or with what the operator reads of
// it; zero if nothing is.
type fault struct{ reason, message string }

// faultOf reads the fault from a set's status.
func faultOf(set *v1alpha1.SidecarSet) fault {
	switch degraded := reasonAndMessage(set, v1alpha1.ConditionDegraded); degraded.reason {
	case v1alpha1.ReasonWorkerUnavailable, v1alpha1.ReasonRolloutFailing, v1alpha1.ReasonRunUnreadable:
		return fault(degraded)
	}
	return fault{}
}

// symptoms are what a run's pending tasks show.
type symptoms struct {
	// waiting is a task that no worker has picked up within pickupTimeout.
	waiting *task
	// failing names what fails, and cause quotes how.
	failing, cause string
	// unsure is set while it is too early to decide, and idle if no task is pending.
	unsure, idle bool
}

// task is one that waits for a worker.
type task struct {
	queue     string
	kind      enums.TaskQueueType
	scheduled time.Time
}

// taskAges records since when each task has been seen, by our own clock: that of
// Temporal may differ.
type taskAges struct {
	since   map[string]time.Time
	current map[string]time.Time
}

// age returns for how long key has been seen, now included.
func (a *taskAges) age(key string, now time.Time) time.Duration {
	first, ok := a.since[key]
	if !ok {
		first = now
	}
	a.current[key] = first
	return now.Sub(first)
}

// examine reads the symptoms from the pending tasks of an open run.
func (a *taskAges) examine(r *run, queue string, now time.Time) symptoms {
	a.current = map[string]time.Time{}
	found := symptoms{idle: r.task == nil && len(r.activities) == 0}
	if r.task != nil {
		a.examineTask(&found, r.task, queue, now)
	}
	for _, activity := range r.activities {
		a.examineActivity(&found, activity, queue, now)
	}
	return found
}

func (a *taskAges) examineTask(found *symptoms, pending *workflow.PendingWorkflowTaskInfo, queue string, now time.Time) {
	switch {
	case pending.Attempt >= failingAttempts:
		found.failing = "the workflow task of the run"
	case pending.State == enums.PENDING_WORKFLOW_TASK_STATE_SCHEDULED:
		a.wait(found, "workflow task", &task{queue, enums.TASK_QUEUE_TYPE_WORKFLOW, pending.ScheduledTime.AsTime()}, now)
	case pending.Attempt > 1:
		found.unsure = true
	}
}

func (a *taskAges) examineActivity(found *symptoms, pending *workflow.PendingActivityInfo, queue string, now time.Time) {
	key := fmt.Sprintf("activity %s, attempt %d, %s", pending.ActivityId, pending.Attempt, pending.State)
	failing := pending.Attempt >= failingAttempts && pending.LastFailure != nil
	switch {
	case pending.State == enums.PENDING_ACTIVITY_STATE_STARTED:
		found.unsure = found.unsure || failing && a.age(key, now) < attemptGracePeriod
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

func (a *taskAges) wait(found *symptoms, key string, pending *task, now time.Time) {
	if a.age(fmt.Sprintf("%s of %s", key, pending.scheduled), now) >= pickupTimeout {
		found.waiting = pending
	} else {
		found.unsure = true
	}
}

// prune forgets what the last examination has not seen.
func (a *taskAges) prune() { a.since, a.current = a.current, nil }

// diagnose returns the fault of the workers that an open run shows; before is the last
// one. It is not sure while it is too early to decide.
func (c *rolloutClient) diagnose(ctx context.Context, r *run, ages *taskAges, before fault) (found fault, sure bool, err error) {
	now := c.clock.Now()
	seen := ages.examine(r, c.taskQueue, now)
	defer ages.prune()
	switch {
	case seen.waiting != nil:
		queue, err := c.describeQueue(ctx, seen.waiting.queue, seen.waiting.kind)
		if err != nil {
			return fault{}, false, err
		}
		found := c.faultOfWaiting(queue, seen.waiting, r.pinned)
		// Without a fault workers do take up tasks; they have many.
		return found, found != fault{}, nil
	case seen.failing != "":
		// What has failed may wait for a worker now.
		return rolloutFailing(seen.failing, seen.cause), !seen.unsure || before.reason != v1alpha1.ReasonWorkerUnavailable, nil
	case seen.unsure || !seen.idle:
		return fault{}, !seen.unsure, nil
	}
	queue, err := c.describeQueue(ctx, c.taskQueue, enums.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return fault{}, false, err
	}
	found = c.faultOfIdle(queue, r.pinned)
	if found != (fault{}) && ages.age("no pollers", now) < pollerGracePeriod {
		return fault{}, false, nil
	}
	return found, true, nil
}

// faultOfWaiting is what is wrong when a task has waited for a worker. One that was
// waiting for tasks when it was scheduled would have got it, and does not poll anew; one
// of another version than those that the task goes to would not.
func (c *rolloutClient) faultOfWaiting(queue *taskQueue, waiting *task, pinned *version) fault {
	wanted, polling := queue.wanted(pinned), queue.polledBy(waiting.scheduled)
	missing := without(wanted, polling)
	switch others := without(polling, wanted); {
	case !polledSince(queue.of(wanted), waiting.scheduled) && len(others) > 0:
		return c.otherVersions(waiting.queue, wanted, others, pinned != nil)
	case !polledSince(queue.of(wanted), waiting.scheduled):
		return c.workerUnavailable(waiting.queue, len(queue.pollers) == 0)
	case len(missing) > 0:
		return c.otherVersions(waiting.queue, missing, polling, false)
	}
	return fault{}
}

// faultOfIdle is what is wrong when no worker will take up the next task of a run.
func (c *rolloutClient) faultOfIdle(queue *taskQueue, pinned *version) fault {
	wanted := queue.wanted(pinned)
	switch polling := queue.polledBy(time.Time{}); {
	case len(queue.of(wanted)) > 0:
		return fault{}
	case len(polling) > 0:
		return c.otherVersions(c.taskQueue, wanted, polling, pinned != nil)
	}
	return c.workerUnavailable(c.taskQueue, true)
}

func (c *rolloutClient) workerUnavailable(queue string, noPollers bool) fault {
	what := "no worker takes up the tasks in task queue " + queue
	if noPollers {
		what = "no worker polls task queue " + queue
	}
	return fault{v1alpha1.ReasonWorkerUnavailable, fmt.Sprintf("%s (Temporal at %s, namespace %s): are workers running, with this task queue and namespace?",
		what, c.address, c.namespace)}
}

// otherVersions says that workers poll whose versions get no tasks of the run.
func (c *rolloutClient) otherVersions(queue string, wanted, polling []version, pinned bool) fault {
	kind, remedy := "current", "make theirs current (temporal worker deployment set-current-version)"
	if pinned {
		kind, remedy = "pinned", "move the run (temporal workflow update-options)"
	}
	return fault{v1alpha1.ReasonWorkerUnavailable, fmt.Sprintf(
		"no worker of the version that is %s (%s) takes up the tasks in task queue %s (Temporal at %s, namespace %s), though workers of others poll it (%s): start workers of that version, or %s",
		kind, listed(wanted), queue, c.address, c.namespace, listed(polling), remedy)}
}

func listed(versions []version) string {
	names := make([]string, len(versions))
	for i, v := range versions {
		names[i] = v.String()
	}
	return strings.Join(names, ", ")
}

func rolloutFailing(what, cause string) fault {
	message := what + " fails again and again"
	if cause = singleLine(cause); cause != "" {
		message += ": " + cause
	}
	return fault{v1alpha1.ReasonRolloutFailing, message + " (it is tried again; see the logs of the workers)"}
}

// runUnreadable is the fault of an operator without the key of a run.
func runUnreadable(cause error) fault {
	return fault{v1alpha1.ReasonRunUnreadable, "the operator cannot read who holds the run: " + singleLine(cause.Error()) +
		" (give it the payload keys that the workers have: --temporal-payload-key-dir)"}
}

// sameFailure reports whether two faults differ in the quoted cause alone.
func (f fault) sameFailure(other fault) bool {
	const mark = " fails again and again"
	what, _, ok := strings.Cut(f.message, mark)
	also, _, too := strings.Cut(other.message, mark)
	return ok && too && f.reason == other.reason && what == also
}

// singleLine makes one bounded line of a failure's message.
func singleLine(message string) string {
	line := strings.Join(strings.FieldsFunc(message, func(c rune) bool { return unicode.IsControl(c) || c == ' ' }), " ")
	if letters := []rune(line); len(letters) > maxCauseLength {
		return string(letters[:maxCauseLength]) + "…"
	}
	return line
}
