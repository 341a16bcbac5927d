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
)

const (
	// pollersTTL is how long one description of a task queue serves all runs.
	pollersTTL = 3 * time.Second
	// pollTimeout is longer than one poll of an idle worker: it polls again within that
	// time.
	pollTimeout = 70 * time.Second
)

type queueKey struct {
	name string
	kind enums.TaskQueueType
}

// taskQueue is a description of a task queue.
type taskQueue struct {
	at time.Time
	// pollers are the workers that polled it in the last minutes, as Temporal
	// remembers them.
	pollers []*taskqueue.PollerInfo
	// routed are the versions that the tasks of runs go to that are not pinned.
	routed []version
}

// describe describes a task queue, unless that was done just before.
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

// wanted are the versions that the tasks of a run go to.
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

// polledBy lists the versions whose workers still poll the queue, sorted: those that
// polled within pollTimeout of the newest poll, or of at if that is later.
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

// polledSince compares only times of Temporal's clock.
func polledSince(pollers []*taskqueue.PollerInfo, scheduled time.Time) bool {
	return slices.ContainsFunc(pollers, func(poller *taskqueue.PollerInfo) bool {
		return poller.LastAccessTime.AsTime().After(scheduled)
	})
}

// without returns the versions that are not among others.
func without(versions, others []version) []version {
	return slices.DeleteFunc(slices.Clone(versions), func(v version) bool { return slices.Contains(others, v) })
}

// version is a version of a worker deployment; the zero value is that of workers without.
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

// pinnedVersion is the version that the tasks of a run go to, whichever is current; nil
// if they go to the current one.
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
