package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/deployment/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
)

const (
	// pollersTTL is how long one answer about a task queue serves all sets.
	pollersTTL = 3 * time.Second
	// pollTimeout is longer than the one poll of a worker with nothing to do: it polls
	// again within that time.
	pollTimeout = 70 * time.Second
)

// queues caches what is known of task queues.
type queues map[queueKey]taskQueue

type queueKey struct {
	name string
	kind enums.TaskQueueType
}

// taskQueue is what Temporal says of one.
type taskQueue struct {
	at time.Time
	// pollers are the workers that polled it in the last minutes, as Temporal
	// remembers them.
	pollers []*taskqueue.PollerInfo
	// routed are the versions that the tasks of runs go to that are not pinned.
	routed []version
}

// version is a version of a worker deployment; the zero value is that of workers without.
type version struct{ deployment, build string }

func (v version) String() string {
	if v == (version{}) {
		return "unversioned"
	}
	return v.deployment + ":" + v.build
}

func versionOf(v *deployment.WorkerDeploymentVersion) version {
	return version{v.GetDeploymentName(), v.GetBuildId()}
}

func versionOfPoller(poller *taskqueue.PollerInfo) version {
	options := poller.GetDeploymentOptions()
	if options.GetWorkerVersioningMode() != enums.WORKER_VERSIONING_MODE_VERSIONED {
		return version{}
	}
	return version{options.GetDeploymentName(), options.GetBuildId()}
}

// pinnedVersion is the version that the tasks of a run go to whichever is current; nil if
// there is none.
func pinnedVersion(info *workflow.WorkflowExecutionVersioningInfo) *version {
	override := info.GetVersioningOverride()
	switch {
	case override.GetPinned() != nil:
		return new(versionOf(override.GetPinned().GetVersion()))
	case override.GetAutoUpgrade(), info.GetBehavior() != enums.VERSIONING_BEHAVIOR_PINNED:
		return nil
	}
	return new(versionOf(info.GetDeploymentVersion()))
}

// routedVersions are the current version of a task queue and the ramping one, as far as
// tasks go to them.
func routedVersions(info *taskqueue.TaskQueueVersioningInfo) (routed []version) {
	ramp := info.GetRampingVersionPercentage()
	if ramp < 100 {
		routed = append(routed, versionOf(info.GetCurrentDeploymentVersion()))
	}
	if ramp > 0 {
		routed = append(routed, versionOf(info.GetRampingDeploymentVersion()))
	}
	return routed
}

// wanted are the versions that the tasks of a run go to.
func (q *taskQueue) wanted(pinned *version) []version {
	if pinned != nil {
		return []version{*pinned}
	}
	return q.routed
}

// of returns the pollers that have one of the versions.
func (q *taskQueue) of(versions []version) (pollers []*taskqueue.PollerInfo) {
	for _, poller := range q.pollers {
		if slices.Contains(versions, versionOfPoller(poller)) {
			pollers = append(pollers, poller)
		}
	}
	return pollers
}

// polledBy lists the versions whose workers still poll the queue, sorted: as long as the
// one that polled last, and when a task was scheduled, unless at is zero.
func (q *taskQueue) polledBy(at time.Time) (versions []version) {
	newest := at
	for _, poller := range q.pollers {
		if access := poller.GetLastAccessTime().AsTime(); access.After(newest) {
			newest = access
		}
	}
	for _, poller := range q.pollers {
		of := versionOfPoller(poller)
		if polledSince([]*taskqueue.PollerInfo{poller}, newest.Add(-pollTimeout)) && !slices.Contains(versions, of) {
			versions = append(versions, of)
		}
	}
	slices.SortFunc(versions, func(a, b version) int { return strings.Compare(a.String(), b.String()) })
	return versions
}

// polledSince compares times of Temporal alone.
func polledSince(pollers []*taskqueue.PollerInfo, scheduled time.Time) bool {
	for _, poller := range pollers {
		if poller.LastAccessTime.AsTime().After(scheduled) {
			return true
		}
	}
	return false
}

// without returns the versions that are not among others.
func without(versions, others []version) []version {
	return slices.DeleteFunc(slices.Clone(versions), func(v version) bool { return slices.Contains(others, v) })
}

// describeQueue asks for a task queue, unless that was done just before.
func (c *rolloutClient) describeQueue(ctx context.Context, name string, kind enums.TaskQueueType) (*taskQueue, error) {
	key := queueKey{name, kind}
	c.mu.Lock()
	known, ok := c.queues[key]
	c.mu.Unlock()
	if ok && c.clock.Since(known.at) < pollersTTL {
		return &known, nil
	}
	var answer *workflowservice.DescribeTaskQueueResponse
	err := c.call(ctx, "DescribeTaskQueue", func(short context.Context) (err error) {
		answer, err = c.client.WorkflowService().DescribeTaskQueue(short, &workflowservice.DescribeTaskQueueRequest{
			Namespace: c.namespace, TaskQueue: &taskqueue.TaskQueue{Name: name, Kind: enums.TASK_QUEUE_KIND_NORMAL}, TaskQueueType: kind,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the pollers of task queue %s: %w", name, err)
	}
	described := taskQueue{at: c.clock.Now(), pollers: answer.GetPollers(), routed: routedVersions(answer.GetVersioningInfo())}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues = queues{}
	}
	c.queues[key] = described
	return &described, nil
}
