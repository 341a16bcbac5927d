package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

// A worker that stops releases its tasks. Another worker claims these tasks before a heartbeat or a workflow
// task times out.
func TestAWorkerThatEndsHandsItsBatchOver(t *testing.T) {
	for name, strategy := range map[string]func(*v1alpha1.SidecarSet){"cold": maxUnavailable(2), "hot": hot(2)} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, 24, strategy).slow("3s")
			s.upgradeTo("side:v2")
			s.await(func(v observer.View) bool { return v.Updated >= 4 })
			ended := s.workerOfBatch()
			require.NoError(t, stack.Stop(ended))
			t.Cleanup(func() { require.NoError(t, stack.StartAgain(context.WithoutCancel(s.ctx), ended)) })
			before := s.watched.View()
			require.Less(t, before.Updated, 24, "the worker has ended too late")
			s.await(observer.Converged(24))
			s.within(2)
			s.awaitPhase(protocol.PhaseComplete)
			assert.Empty(t, s.timeouts())
		})
	}
}

// The processes restart one after the other. All rollouts continue, and no task times out.
func TestARollingRestartDelaysNoRollout(t *testing.T) {
	s := newScenario(t, 40, maxUnavailable(2)).slow("3s")
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 4 })
	for _, role := range []string{"worker-1", cluster.Operator, "worker-2"} {
		require.NoError(t, stack.Stop(role))
		require.NoError(t, stack.StartAgain(s.ctx, role))
	}
	require.Less(t, s.watched.View().Updated, 40, "the rollout was over before the restarts")
	s.await(observer.Converged(40))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
	assert.Empty(t, s.timeouts())
}

// timeouts returns the timed-out tasks in the history of the newest run, except the timeouts that a worker
// cannot prevent. A server without the capability WorkerPollCompleteOnShutdown may dispatch a workflow task to a
// poll that is being closed. A busy machine may suspend a worker while a task is in its sticky queue. After a
// second, the server then dispatches the task to any worker.
func (s *scenario) timeouts() (found []string) {
	s.t.Helper()
	namespace, err := stack.temporal.WorkflowService().DescribeNamespace(s.ctx, &workflowservice.DescribeNamespaceRequest{Namespace: cluster.TemporalNamespace})
	require.NoError(s.t, err)
	mayBeCut := !namespace.GetNamespaceInfo().GetCapabilities().GetWorkerPollCompleteOnShutdown()
	s.events(func(event *historypb.HistoryEvent) {
		if failed := event.GetActivityTaskStartedEventAttributes().GetLastFailure().GetTimeoutFailureInfo(); failed != nil {
			found = append(found, fmt.Sprintf("activity, event %d: %s", event.EventId, failed.TimeoutType))
		}
		switch event.EventType {
		case enums.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
			timeout := event.GetWorkflowTaskTimedOutEventAttributes().TimeoutType
			if mayBeCut && timeout == enums.TIMEOUT_TYPE_START_TO_CLOSE || timeout == enums.TIMEOUT_TYPE_SCHEDULE_TO_START {
				return
			}
			fallthrough
		case enums.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
			found = append(found, fmt.Sprintf("event %d: %s", event.EventId, event))
		}
	})
	return found
}

// events calls visit with each event in the history of the newest run of the SidecarSet.
func (s *scenario) events(visit func(*historypb.HistoryEvent)) {
	s.t.Helper()
	history := stack.temporal.GetWorkflowHistory(s.ctx, s.workflow(), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(s.t, err)
		visit(event)
	}
}
