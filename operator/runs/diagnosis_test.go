package runs

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/deployment/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/failure/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	scheduled = enums.PENDING_ACTIVITY_STATE_SCHEDULED
	started   = enums.PENDING_ACTIVITY_STATE_STARTED
)

func pending(state enums.PendingActivityState, attempt int32, backsOff bool) *workflow.PendingActivityInfo {
	info := &workflow.PendingActivityInfo{ActivityId: "1", ActivityType: &common.ActivityType{Name: "NextBatch"}, State: state, Attempt: attempt}
	if attempt > 1 {
		info.LastFailure = &failure.Failure{Message: "no"}
	}
	if backsOff {
		info.NextAttemptScheduleTime = timestamppb.New(time.Unix(2000, 0))
	}
	return info
}

func TestSpec8_PendingTasksShowTheFault(t *testing.T) {
	const wait, begun = enums.PENDING_WORKFLOW_TASK_STATE_SCHEDULED, enums.PENDING_WORKFLOW_TASK_STATE_STARTED
	for _, c := range []struct {
		name string
		run  Run
		// first is the result of the first diagnosis. later is the result after some time without changes.
		first, later string
	}{
		{"asleep", Run{}, "idle", "idle"},
		{"a paused activity", Run{Activities: []*workflow.PendingActivityInfo{pending(enums.PENDING_ACTIVITY_STATE_PAUSED, 5, true)}}, "paused", "paused"},
		{"an activity that is about to pause", Run{Activities: []*workflow.PendingActivityInfo{pending(enums.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED, 1, false)}}, "paused", "paused"},
		{"a long batch", Run{Activities: []*workflow.PendingActivityInfo{pending(started, 1, false)}}, "well", "well"},
		{"an activity without a worker", Run{Activities: []*workflow.PendingActivityInfo{pending(scheduled, 1, false)}}, "unsure", "waiting"},
		{"between two attempts", Run{Activities: []*workflow.PendingActivityInfo{pending(scheduled, 2, true)}}, "unsure", "unsure"},
		{"a measurement that is not due", Run{Activities: []*workflow.PendingActivityInfo{notDue()}}, "idle", "idle"},
		{"between many attempts", Run{Activities: []*workflow.PendingActivityInfo{pending(scheduled, 3, true)}}, "failing", "failing"},
		{"an attempt after many", Run{Activities: []*workflow.PendingActivityInfo{pending(started, 5, false)}}, "unsure", "well"},
		{"no worker for another attempt", Run{Activities: []*workflow.PendingActivityInfo{pending(scheduled, 5, false)}}, "failing", "waiting"},
		{"a task without a worker", Run{Task: &workflow.PendingWorkflowTaskInfo{State: wait, Attempt: 1}}, "unsure", "waiting"},
		{"a task in progress", Run{Task: &workflow.PendingWorkflowTaskInfo{State: begun, Attempt: 1}}, "well", "well"},
		{"a task that failed once", Run{Task: &workflow.PendingWorkflowTaskInfo{State: begun, Attempt: 2}}, "unsure", "unsure"},
		{"a task that fails", Run{Task: &workflow.PendingWorkflowTaskInfo{State: wait, Attempt: 3}}, "failing", "failing"},
	} {
		var s TaskAges
		for i, want := range []string{c.first, c.later} {
			found := s.examine(&c.run, "queue", time.Unix(1000, 0).Add(time.Duration(i)*attemptGracePeriod))
			s.prune()
			assert.Equal(t, want, nameOf(found), c.name)
		}
	}
}

func notDue() *workflow.PendingActivityInfo {
	waits := pending(scheduled, 3, true)
	waits.LastFailure.FailureInfo = &failure.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failure.ApplicationFailureInfo{Type: protocol.GateNotDue}}
	return waits
}

func nameOf(found symptoms) string {
	switch {
	case found.paused != nil:
		return "paused"
	case found.waiting != nil:
		return "waiting"
	case found.failing != "":
		return "failing"
	case found.unsure:
		return "unsure"
	case found.idle:
		return "idle"
	}
	return "well"
}

func TestAFailedTaskMayWaitForAWorker(t *testing.T) {
	rollouts := &diagnoser{connection: &connection{clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}}
	waits := &Run{Activities: []*workflow.PendingActivityInfo{pending(scheduled, 5, false)}}
	_, sure, err := rollouts.Diagnose(t.Context(), waits, &TaskAges{}, Fault{})
	require.NoError(t, err)
	assert.True(t, sure)
	_, sure, err = rollouts.Diagnose(t.Context(), waits, &TaskAges{}, rollouts.workerUnavailable("queue", true))
	require.NoError(t, err)
	assert.False(t, sure, "a new operator keeps to what status says")
}

func TestSpec8_APausedActivityIsReportedWithItsCause(t *testing.T) {
	rollouts := &diagnoser{connection: &connection{clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}}
	rollouts.namespace = "sidecars"
	diagnosed := func(info *workflow.PendingActivityInfo_PauseInfo) string {
		paused := pending(enums.PENDING_ACTIVITY_STATE_PAUSED, 1, false)
		paused.PauseInfo = info
		found, sure, err := rollouts.Diagnose(t.Context(), &Run{WorkflowID: "sidecarset/logs", Activities: []*workflow.PendingActivityInfo{paused}}, &TaskAges{}, Fault{})
		require.NoError(t, err)
		assert.True(t, sure)
		assert.Equal(t, v1alpha1.ReasonRolloutFailing, found.Reason)
		return found.Message
	}
	manual := &workflow.PendingActivityInfo_PauseInfo{PausedBy: &workflow.PendingActivityInfo_PauseInfo_Manual_{Manual: &workflow.PendingActivityInfo_PauseInfo_Manual{Identity: "ann", Reason: "looks odd"}}}
	assert.Equal(t, "activity NextBatch is paused in Temporal by ann: looks odd (unpause it: temporal activity unpause -n sidecars -w sidecarset/logs --activity-id 1)", diagnosed(manual))
	rule := &workflow.PendingActivityInfo_PauseInfo{PausedBy: &workflow.PendingActivityInfo_PauseInfo_Rule_{Rule: &workflow.PendingActivityInfo_PauseInfo_Rule{RuleId: "no-retries"}}}
	assert.Equal(t, "activity NextBatch is paused in Temporal by workflow rule no-retries (unpause it: temporal activity unpause -n sidecars -w sidecarset/logs --activity-id 1)", diagnosed(rule))
	assert.Equal(t, "activity NextBatch is paused in Temporal (unpause it: temporal activity unpause -n sidecars -w sidecarset/logs --activity-id 1)", diagnosed(nil))
}

func TestTasksAreIdentifiedByTheirAttempt(t *testing.T) {
	var s TaskAges
	now := time.Unix(1000, 0)
	for attempt := range int32(5) {
		now = now.Add(pickupTimeout)
		found := s.examine(&Run{Activities: []*workflow.PendingActivityInfo{{ActivityId: "1", State: scheduled, Attempt: attempt}}}, "queue", now)
		s.prune()
		assert.Nil(t, found.waiting, "each waits for a short time")
	}
}

func TestWorkersThatPolledSinceAreBusy(t *testing.T) {
	at := time.Unix(1000, 0)
	pollers := []*taskqueue.PollerInfo{{LastAccessTime: timestamppb.New(at)}}
	assert.True(t, polledSince(pollers, at.Add(-time.Second)))
	assert.False(t, polledSince(pollers, at.Add(time.Second)))
	assert.False(t, polledSince(nil, at))
}

func pollerOf(v version, at time.Time) *taskqueue.PollerInfo {
	info := &taskqueue.PollerInfo{LastAccessTime: timestamppb.New(at)}
	if v != (version{}) {
		info.DeploymentOptions = &deployment.WorkerDeploymentOptions{
			DeploymentName: v.deployment, BuildId: v.build, WorkerVersioningMode: enums.WORKER_VERSIONING_MODE_VERSIONED}
	}
	return info
}

func TestSpec8_WorkersOfOtherVersionsAreNone(t *testing.T) {
	var (
		none    version
		v1, v2  = version{"d", "1"}, version{"d", "2"}
		at      = time.Unix(1000, 0)
		before  = at.Add(-time.Minute)
		after   = at.Add(stopMargin + time.Second)
		stops   = at.Add(stopMargin)
		longAgo = at.Add(-4 * time.Minute)
	)
	polled := func(times map[version]time.Time) (pollers []*taskqueue.PollerInfo) {
		for v, at := range times {
			pollers = append(pollers, pollerOf(v, at))
		}
		return pollers
	}
	const well = ""
	for _, c := range []struct {
		name          string
		routed        []version
		pinned        *version
		polled        map[version]time.Time
		waiting, idle string
	}{
		{"busy", []version{v1}, nil, map[version]time.Time{v1: after}, well, well},
		{"busy, and the next version polls", []version{v1}, nil, map[version]time.Time{v1: after, v2: before}, well, well},
		{"busy without versions", []version{none}, nil, map[version]time.Time{none: after}, well, well},
		{"no worker", []version{none}, nil, nil, "Temporal responds, but no worker polls task queue q (Temporal at ", "no worker polls"},
		{"gone", []version{v1}, nil, map[version]time.Time{v1: before}, "no worker claims", well},
		{"stopped while the task was scheduled", []version{v1}, nil, map[version]time.Time{v1: stops}, "no worker claims", well},
		{"before the first is current", []version{none}, nil, map[version]time.Time{v1: before}, "current version (unversioned)", "current version (unversioned)"},
		{"replaced in place", []version{v1}, nil, map[version]time.Time{v1: before, v2: after}, "poll the task queue (d:2)", well},
		{"replaced long ago", []version{v1}, nil, map[version]time.Time{v2: after}, "current version (d:1)", "poll the task queue (d:2)"},
		{"no pollers", []version{v1}, nil, map[version]time.Time{v1: longAgo, v2: longAgo}, "no worker claims the tasks", well},
		{"two others", []version{v1}, nil, map[version]time.Time{v2: after, none: after}, "poll the task queue (d:2, unversioned)", "poll the task queue (d:2, unversioned)"},
		{"ramping", []version{v1, v2}, nil, map[version]time.Time{v1: after, v2: after}, well, well},
		{"ramping to no worker", []version{v1, v2}, nil, map[version]time.Time{v1: after}, "current version (d:2) claims", well},
		{"pinned", []version{v2}, &v1, map[version]time.Time{v1: after, v2: after}, well, well},
		{"pinned to a version without pollers", []version{v2}, &v1, map[version]time.Time{v2: after}, "pinned version (d:1)", "move the run"},
	} {
		rollouts := &diagnoser{connection: &connection{}, taskQueue: "q"}
		queue := &taskQueue{pollers: polled(c.polled), routed: c.routed}
		says := func(want string, found Fault) {
			assert.Contains(t, found.Message, want, c.name)
			assert.Equal(t, want == well, found == Fault{}, "%s: %s", c.name, found.Message)
		}
		says(c.waiting, rollouts.faultOfWaiting(queue, &task{queue: "q", scheduled: at}, c.pinned))
		says(c.idle, rollouts.faultOfIdle(queue, c.pinned))
	}
}

func TestVersionsThatTasksGoTo(t *testing.T) {
	v1, v2 := &deployment.WorkerDeploymentVersion{DeploymentName: "d", BuildId: "1"}, &deployment.WorkerDeploymentVersion{DeploymentName: "d", BuildId: "2"}
	ramp := func(percent float32) *taskqueue.TaskQueueVersioningInfo {
		return &taskqueue.TaskQueueVersioningInfo{CurrentDeploymentVersion: v1, RampingDeploymentVersion: v2, RampingVersionPercentage: percent}
	}
	assert.Equal(t, []version{{}}, routedVersions(nil))
	assert.Equal(t, []version{{"d", "1"}}, routedVersions(ramp(0)))
	assert.Equal(t, []version{{"d", "1"}, {"d", "2"}}, routedVersions(ramp(10)))
	assert.Equal(t, []version{{"d", "2"}}, routedVersions(ramp(100)))
}

func TestQuotesAreBounded(t *testing.T) {
	assert.Equal(t, "a b c", singleLine(" a\n\tb\r c "))
	assert.Len(t, []rune(singleLine(strings.Repeat("ä", 1000))), maxCauseLength+1)
}
