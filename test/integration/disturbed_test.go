package integration

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

// rounds returns the number of times that each fault is injected. The environment variable OUTRIGGER_ROUNDS
// overrides the default.
func rounds(t *testing.T) int {
	t.Helper()
	asked := os.Getenv("OUTRIGGER_ROUNDS")
	if asked == "" {
		return 3
	}
	n, err := strconv.Atoi(asked)
	require.NoError(t, err, "OUTRIGGER_ROUNDS")
	return n
}

// Temporal cannot stop writes that a worker has already sent. The writes of the next run, together with these
// writes, must not exceed the limit.
func TestSpec7_5_MaxUnavailableHoldsWhenARunLosesItsWorker(t *testing.T) {
	for name, disturb := range map[string]func(*scenario){
		"terminated": (*scenario).terminate, "reset": func(s *scenario) { s.reset(s.workflow()) }, "frozen": (*scenario).freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for round := range rounds(t) {
				t.Run(fmt.Sprint(round), func(t *testing.T) {
					s := newScenario(t, 30, maxUnavailable(6)).slow("3s")
					s.upgradeTo("side:v2")
					s.await(func(v observer.View) bool { return v.Updated >= 8 })
					disturb(s)
					s.await(observer.Converged(30))
					s.within(6)
					s.awaitPhase(protocol.PhaseComplete)
				})
			}
		})
	}
}

func (s *scenario) terminate() {
	s.t.Helper()
	require.NoError(s.t, stack.temporal.TerminateWorkflow(s.ctx, s.workflow(), "", "a test"))
}

// reset resets the open run of the workflow to its first completed workflow task. The new run does not receive
// events of the types lost.
func (s *scenario) reset(workflow string, lost ...enums.ResetReapplyExcludeType) {
	s.t.Helper()
	history := stack.temporal.GetWorkflowHistory(s.ctx, workflow, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(s.t, err)
		if event.EventType != enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			continue
		}
		_, err = stack.temporal.ResetWorkflowExecution(s.ctx, &workflowservice.ResetWorkflowExecutionRequest{
			Namespace: cluster.TemporalNamespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: workflow},
			Reason: "a test", WorkflowTaskFinishEventId: event.EventId, RequestId: s.t.Name(), ResetReapplyExcludeTypes: lost,
		})
		require.NoError(s.t, err)
		return
	}
	require.Fail(s.t, "the run has done nothing yet")
}

// freeze suspends the worker that runs the batch, until another worker has claimed the batch and has begun to
// write.
func (s *scenario) freeze() {
	s.t.Helper()
	frozen := s.workerOfBatch()
	require.NoError(s.t, stack.Freeze(frozen))
	thawed := false
	thaw := func() {
		if !thawed {
			require.NoError(s.t, stack.Thaw(frozen))
		}
		thawed = true
	}
	s.t.Cleanup(thaw)
	paused := s.await(func(v observer.View) bool { return v.InFlight == 0 })
	s.await(func(v observer.View) bool { return v.Updated > paused.Updated })
	thaw()
}

// workerOfBatch returns the name of the worker that currently upgrades pods of the SidecarSet.
func (s *scenario) workerOfBatch() (name string) {
	s.t.Helper()
	s.poll("a batch in progress", func() (bool, error) {
		run, err := stack.temporal.DescribeWorkflowExecution(s.ctx, s.workflow(), "")
		if err != nil {
			return false, err
		}
		for _, pending := range run.PendingActivities {
			if pending.ActivityType.Name != protocol.UpgradeBatchActivity {
				continue
			}
			for _, worker := range workers() {
				if pending.LastWorkerIdentity == "outrigger-worker@"+worker {
					name = worker
				}
			}
		}
		return name != "", nil
	})
	return name
}
