//go:build temporalcluster

package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

const (
	clusterPods   = 32
	clusterWindow = 4
)

// newClusterScene is in the middle of a rollout that takes half a minute, so that
// Temporal's hosts notice a loss before its end. It returns the id of the run.
func newClusterScene(t *testing.T) (s *scene, run string) {
	t.Helper()
	s = newKubeletScene(t, clusterPods, map[string]string{readyAfter: "3s"}, window(clusterWindow))
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2*clusterWindow })
	return s, s.run()
}

func (s *scene) run() string {
	s.t.Helper()
	open, err := stack.temporal.DescribeWorkflowExecution(s.ctx, s.workflow(), "")
	require.NoError(s.t, err)
	return open.WorkflowExecutionInfo.Execution.RunId
}

// lose kills a process, which is started again at the end of the test.
func (s *scene) lose(name string) {
	s.t.Helper()
	require.NoError(s.t, stack.Kill(name))
	s.t.Cleanup(func() { require.NoError(s.t, stack.StartAgain(context.WithoutCancel(s.ctx), name)) })
}

// insist repeats a signal until Temporal has taken it.
func (s *scene) insist(name string, payload any) {
	s.t.Helper()
	s.poll("Temporal to take "+name, func() (bool, error) {
		err := stack.temporal.SignalWorkflow(s.ctx, s.workflow(), "", name, payload)
		if gone := (*serviceerror.NotFound)(nil); errors.As(err, &gone) {
			return false, err
		}
		return err == nil, nil
	})
}

// holdAndResume shows that the run takes signals and obeys them.
func (s *scene) holdAndResume() {
	s.t.Helper()
	hold := protocol.Pause{By: "ann", Reason: "a test"}
	s.insist(protocol.PauseSignal, hold)
	require.Equal(s.t, &hold, s.awaitPhase(protocol.PhasePaused).Pause)
	held := s.await(func(v observer.View) bool { return v.InFlight == 0 })
	require.Less(s.t, held.Updated, clusterPods, "the rollout was over before Temporal could do anything")
	s.insist(protocol.ResumeSignal, protocol.Pause{By: "ann"})
}

// settled awaits the end of the rollout, within the budget.
func (s *scene) settled() observer.View {
	s.t.Helper()
	view := s.await(observer.Converged(clusterPods))
	s.within(clusterWindow)
	s.awaitPhase(protocol.PhaseComplete)
	worst, _ := s.watched.Worst()
	s.t.Logf("%d in flight at most, %d allowed", worst, clusterWindow)
	return view
}

// settledInRun shows that the rollout completes in the run that it began in, and
// that each sidecar has restarted once.
func (s *scene) settledInRun(run string) {
	s.t.Helper()
	view := s.settled()
	require.Equal(s.t, run, s.run())
	require.Equal(s.t, int32(clusterPods), view.SidecarRestarts)
}

// generations counts the generations that the newest run was told.
func (s *scene) generations() int {
	s.t.Helper()
	told := 0
	history := stack.temporal.GetWorkflowHistory(s.ctx, s.workflow(), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(s.t, err)
		if event.GetWorkflowExecutionSignaledEventAttributes().GetSignalName() == protocol.GenerationSignal {
			told++
		}
	}
	return told
}

// One of two history hosts has the run's shard; whichever is lost, the other
// one goes on with it.
func TestTemporalClusterLosesAHistoryHost(t *testing.T) {
	for _, host := range []string{cluster.TemporalHistory1, cluster.TemporalHistory2} {
		t.Run(host, func(t *testing.T) {
			s, run := newClusterScene(t)
			s.lose(host)
			s.holdAndResume()
			s.settledInRun(run)
		})
	}
}

// Without matching no task reaches a worker, but the run takes what it is told.
func TestTemporalClusterLosesMatching(t *testing.T) {
	s, _ := newClusterScene(t)
	s.lose(cluster.TemporalMatching)
	told := s.generations()
	s.upgradeTo("side:v3")
	s.poll("the run to be told the new generation", func() (bool, error) { return s.generations() > told, nil })
	require.NoError(t, stack.StartAgain(s.ctx, cluster.TemporalMatching))
	s.settled()
}

func TestTemporalClusterLosesItsFrontend(t *testing.T) {
	s, run := newClusterScene(t)
	s.lose(cluster.TemporalFrontend)
	s.await(func(v observer.View) bool { return v.InFlight == 0 })
	require.NoError(t, stack.StartAgain(s.ctx, cluster.TemporalFrontend))
	s.holdAndResume()
	s.settledInRun(run)
}

func TestTemporalClusterOutlivesItsDatabase(t *testing.T) {
	for name, end := range map[string]func(string) error{"restarted": stack.Stop, "killed": stack.Kill} {
		t.Run(name, func(t *testing.T) {
			s, run := newClusterScene(t)
			require.NoError(t, end(cluster.Postgres))
			s.poll("PostgreSQL to start again", func() (bool, error) {
				return stack.StartAgain(s.ctx, cluster.Postgres) == nil, nil // not while its old children live
			})
			s.holdAndResume()
			s.settledInRun(run)
		})
	}
}
