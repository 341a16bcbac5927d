package runs

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

	"github.com/outrigger/outrigger/temporal"
)

const (
	// pollersTTL is the time that the description of a task queue is cached for all runs.
	pollersTTL = 3 * time.Second
	// pollTimeout is longer than one poll of an idle worker, so an idle worker polls again within pollTimeout.
	pollTimeout = 70 * time.Second
)

type queueKey struct {
	name string
	kind enums.TaskQueueType
}

// taskQueue is a description of a task queue.
type taskQueue struct {
	at time.Time
	// pollers lists the workers that polled the queue in the last minutes, as reported by
	// Temporal.
	pollers []*taskqueue.PollerInfo
	// routed lists the versions to which Temporal routes the tasks of runs without a pinned version.
	routed []version
}

// describe returns the description of a task queue, from the cache if the description is younger
// than pollersTTL.
func (d *diagnoser) describe(ctx context.Context, name string, kind enums.TaskQueueType) (*taskQueue, error) {
	key := queueKey{name, kind}
	d.mu.Lock()
	known, ok := d.queues[key]
	d.mu.Unlock()
	if ok && d.clock.Since(known.at) < pollersTTL {
		return &known, nil
	}
	answer, err := call(ctx, d.connection, "DescribeTaskQueue", d.client.WorkflowService().DescribeTaskQueue, &workflowservice.DescribeTaskQueueRequest{
		Namespace: d.namespace, TaskQueue: &taskqueue.TaskQueue{Name: name, Kind: enums.TASK_QUEUE_KIND_NORMAL}, TaskQueueType: kind,
	})
	if err != nil {
		return nil, fmt.Errorf("list the pollers of task queue %s: %w", name, err)
	}
	described := taskQueue{at: d.clock.Now(), pollers: answer.GetPollers(), routed: routedVersions(answer.GetVersioningInfo())}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues[key] = described
	return &described, nil
}

// wanted returns the versions to which Temporal routes the tasks of a run.
func (q *taskQueue) wanted(pinned *version) []version {
	if pinned != nil {
		return []version{*pinned}
	}
	return q.routed
}

// of returns the pollers that have one of the versions.
func (q *taskQueue) of(versions []version) []*taskqueue.PollerInfo {
	return slices.DeleteFunc(slices.Clone(q.pollers), func(poller *taskqueue.PollerInfo) bool {
		return !slices.Contains(versions, versionOfPoller(poller))
	})
}

// polledBy returns the sorted versions of the workers that still poll the queue. The reference time is the
// newest poll of all workers, or at if at is later. A worker still polls if the last poll of the worker is
// less than pollTimeout before the reference time.
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

// polledSince reports whether at least one poller has polled after the time scheduled. Both times are from
// the clock of Temporal.
func polledSince(pollers []*taskqueue.PollerInfo, scheduled time.Time) bool {
	return slices.ContainsFunc(pollers, func(poller *taskqueue.PollerInfo) bool {
		return poller.LastAccessTime.AsTime().After(scheduled)
	})
}

// without returns the versions that others does not contain.
func without(versions, others []version) []version {
	return slices.DeleteFunc(slices.Clone(versions), func(v version) bool { return slices.Contains(others, v) })
}

// version is a version of a worker deployment. The zero value is the version of workers without
// versioning.
type version struct{ deployment, build string }

func (v version) String() string {
	if v == (version{}) {
		return "unversioned"
	}
	return v.deployment + ":" + v.build
}

func listed(versions []version) string {
	names := make([]string, len(versions))
	for i, v := range versions {
		names[i] = v.String()
	}
	return strings.Join(names, ", ")
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

// pinnedVersion returns the version to which a run is pinned, or nil.
func pinnedVersion(info *workflow.WorkflowExecutionVersioningInfo) *version {
	pinned := temporal.PinnedVersion(info)
	if pinned == nil {
		return nil
	}
	return new(versionOf(pinned))
}

// routedVersions returns the current version and the ramping version of a task queue. routedVersions omits
// a version that receives no tasks.
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
