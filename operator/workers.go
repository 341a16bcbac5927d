package operator

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// A task that waits longer than attention for a worker finds none; a queue
	// may lack workers for absence, such as after a restart of Temporal.
	attention = 8 * time.Second
	absence   = 20 * time.Second
	// An attempt after several that failed counts as good once it has lasted.
	endurance = 15 * time.Second
	// fails is the attempt from which on a task fails again and again.
	fails = 3
	// minMessageAge is how often the words about a failure may change.
	minMessageAge = time.Minute
	// longestCause bounds what is quoted of a failure, in characters.
	longestCause = 300
	// pollersKept is how long one answer about a task queue serves all sets.
	pollersKept = 3 * time.Second
)

// fault is what is wrong with those who do a run's work; zero if nothing is.
type fault struct{ reason, message string }

// faultOf reads the fault that a set's status tells of.
func faultOf(set *v1alpha1.SidecarSet) fault {
	switch told := reasonAndMessage(set, v1alpha1.ConditionDegraded); told.reason {
	case v1alpha1.ReasonWorkerUnavailable, v1alpha1.ReasonRolloutFailing:
		return fault(told)
	}
	return fault{}
}

// symptoms are what a run's pending tasks show.
type symptoms struct {
	// waiting is a task that nobody has taken up for long.
	waiting *task
	// failing names what fails, and cause quotes how.
	failing, cause string
	// unsure is set while it is too early to tell, and idle when no task pends.
	unsure, idle bool
}

// task is one that waits for a worker.
type task struct {
	queue     string
	kind      enums.TaskQueueType
	scheduled time.Time
}

// taskAges tell since when something has been seen, by our own clock: that of
// Temporal may differ.
type taskAges struct {
	since   map[string]time.Time
	current map[string]time.Time
}

// age of what key names, which is seen now.
func (s *taskAges) age(key string, now time.Time) time.Duration {
	first, ok := s.since[key]
	if !ok {
		first = now
	}
	s.current[key] = first
	return now.Sub(first)
}

// examine looks at the pending tasks of an open run.
func (s *taskAges) examine(r *run, queue string, now time.Time) symptoms {
	s.current = map[string]time.Time{}
	found := symptoms{idle: r.task == nil && len(r.activities) == 0}
	if r.task != nil {
		s.examineTask(&found, r.task, queue, now)
	}
	for _, activity := range r.activities {
		s.examineActivity(&found, activity, queue, now)
	}
	return found
}

func (s *taskAges) examineTask(found *symptoms, pending *workflow.PendingWorkflowTaskInfo, queue string, now time.Time) {
	switch {
	case pending.Attempt >= fails:
		found.failing = "the workflow task of the run"
	case pending.State == enums.PENDING_WORKFLOW_TASK_STATE_SCHEDULED:
		s.wait(found, "workflow task", &task{queue, enums.TASK_QUEUE_TYPE_WORKFLOW, pending.ScheduledTime.AsTime()}, now)
	case pending.Attempt > 1:
		found.unsure = true
	}
}

func (s *taskAges) examineActivity(found *symptoms, pending *workflow.PendingActivityInfo, queue string, now time.Time) {
	key := fmt.Sprintf("activity %s, attempt %d, %s", pending.ActivityId, pending.Attempt, pending.State)
	failing := pending.Attempt >= fails && pending.LastFailure != nil
	switch {
	case pending.State == enums.PENDING_ACTIVITY_STATE_STARTED:
		found.unsure = found.unsure || failing && s.age(key, now) < endurance
		return
	case pending.State != enums.PENDING_ACTIVITY_STATE_SCHEDULED:
		return
	case pending.NextAttemptScheduleTime == nil:
		if named := pending.GetActivityOptions().GetTaskQueue().GetName(); named != "" {
			queue = named
		}
		s.wait(found, key, &task{queue, enums.TASK_QUEUE_TYPE_ACTIVITY, pending.ScheduledTime.AsTime()}, now)
	}
	if failing {
		found.failing, found.cause = "activity "+pending.GetActivityType().GetName(), pending.LastFailure.Message
	} else if pending.Attempt > 1 {
		found.unsure = true
	}
}

func (s *taskAges) wait(found *symptoms, key string, pending *task, now time.Time) {
	if s.age(fmt.Sprintf("%s of %s", key, pending.scheduled), now) >= attention {
		found.waiting = pending
	} else {
		found.unsure = true
	}
}

// settle ends an examination.
func (s *taskAges) settle() { s.since, s.current = s.current, nil }

// diagnose tells what is wrong with those who do the work of an open run, and was
// before. It is not sure while it is too early to tell.
func (c *rolloutClient) diagnose(ctx context.Context, r *run, s *taskAges, before fault) (found fault, sure bool, err error) {
	now := c.now()
	seen := s.examine(r, c.taskQueue, now)
	defer s.settle()
	switch {
	case seen.waiting != nil:
		pollers, err := c.pollers(ctx, seen.waiting.queue, seen.waiting.kind)
		if err != nil {
			return fault{}, false, err
		}
		if askedSince(pollers, seen.waiting.scheduled) {
			// Workers do take up tasks; they have many.
			return fault{}, false, nil
		}
		return c.unattended(seen.waiting.queue, len(pollers) == 0), true, nil
	case seen.failing != "":
		// What has failed may wait for a worker now.
		return failing(seen.failing, seen.cause), !seen.unsure || before.reason != v1alpha1.ReasonWorkerUnavailable, nil
	case seen.unsure || !seen.idle:
		return fault{}, !seen.unsure, nil
	}
	pollers, err := c.pollers(ctx, c.taskQueue, enums.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil || len(pollers) > 0 {
		return fault{}, err == nil, err
	}
	if s.age("no pollers", now) < absence {
		return fault{}, false, nil
	}
	return c.unattended(c.taskQueue, true), true, nil
}

// askedSince compares times of Temporal alone.
func askedSince(pollers []*taskqueue.PollerInfo, scheduled time.Time) bool {
	for _, poller := range pollers {
		if poller.LastAccessTime.AsTime().After(scheduled) {
			return true
		}
	}
	return false
}

func (c *rolloutClient) unattended(queue string, nobody bool) fault {
	what := "no worker takes up the tasks in task queue " + queue
	if nobody {
		what = "no worker polls task queue " + queue
	}
	return fault{v1alpha1.ReasonWorkerUnavailable, fmt.Sprintf("%s (Temporal at %s, namespace %s): are workers running, with this task queue and namespace?",
		what, c.address, c.namespace)}
}

func failing(what, cause string) fault {
	message := what + " fails again and again"
	if cause = quotable(cause); cause != "" {
		message += ": " + cause
	}
	return fault{v1alpha1.ReasonRolloutFailing, message + " (it is tried again; see the logs of the workers)"}
}

// sameFailure reports whether two faults differ in the quoted cause alone.
func (f fault) sameFailure(other fault) bool {
	const mark = " fails again and again"
	what, _, ok := strings.Cut(f.message, mark)
	also, _, too := strings.Cut(other.message, mark)
	return ok && too && f.reason == other.reason && what == also
}

// quotable makes one bounded line of a failure's message.
func quotable(message string) string {
	line := strings.Join(strings.FieldsFunc(message, func(c rune) bool { return unicode.IsControl(c) || c == ' ' }), " ")
	if letters := []rune(line); len(letters) > longestCause {
		return string(letters[:longestCause]) + "…"
	}
	return line
}

// queues are what was heard about task queues of late.
type queues map[queueKey]queueAnswer

type queueKey struct {
	name string
	kind enums.TaskQueueType
}

type queueAnswer struct {
	at      time.Time
	pollers []*taskqueue.PollerInfo
}

// pollers lists the workers that asked for work of late: Temporal remembers them
// for some minutes.
func (c *rolloutClient) pollers(ctx context.Context, queue string, kind enums.TaskQueueType) ([]*taskqueue.PollerInfo, error) {
	key := queueKey{queue, kind}
	c.mu.Lock()
	known, ok := c.queues[key]
	c.mu.Unlock()
	if ok && c.now().Sub(known.at) < pollersKept {
		return known.pollers, nil
	}
	var answer *workflowservice.DescribeTaskQueueResponse
	err := c.call(ctx, "DescribeTaskQueue", func(short context.Context) (err error) {
		answer, err = c.client.WorkflowService().DescribeTaskQueue(short, &workflowservice.DescribeTaskQueueRequest{
			Namespace: c.namespace, TaskQueue: &taskqueue.TaskQueue{Name: queue, Kind: enums.TASK_QUEUE_KIND_NORMAL}, TaskQueueType: kind,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask who works on task queue %s: %w", queue, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues = queues{}
	}
	c.queues[key] = queueAnswer{c.now(), answer.GetPollers()}
	return answer.GetPollers(), nil
}
