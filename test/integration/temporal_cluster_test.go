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

// newClusterScenario starts a rollout that takes half a minute, so that the hosts of Temporal detect a loss
// before the rollout ends. newClusterScenario returns the ID of the run.
func newClusterScenario(t *testing.T) (s *scenario, run string) {
	t.Helper()
	s = newKubeletScenario(t, clusterPods, map[string]string{readyAfter: "3s"}, maxUnavailable(clusterWindow))
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2*clusterWindow })
	return s, s.run()
}

func (s *scenario) run() string {
	s.t.Helper()
	open, err := stack.temporal.DescribeWorkflowExecution(s.ctx, s.workflow(), "")
	require.NoError(s.t, err)
	return open.WorkflowExecutionInfo.Execution.RunId
}

// lose kills a process, and starts the process again at the end of the test.
func (s *scenario) lose(name string) {
	s.t.Helper()
	require.NoError(s.t, stack.Kill(name))
	s.t.Cleanup(func() { require.NoError(s.t, stack.StartAgain(context.WithoutCancel(s.ctx), name)) })
}

// insist sends a signal, and retries until Temporal accepts the signal.
func (s *scenario) insist(name string, payload any) {
	s.t.Helper()
	s.poll("Temporal to take "+name, func() (bool, error) {
		err := stack.temporal.SignalWorkflow(s.ctx, s.workflow(), "", name, payload)
		if gone := (*serviceerror.NotFound)(nil); errors.As(err, &gone) {
			return false, err
		}
		return err == nil, nil
	})
}

// pauseAndResume asserts that signals pause and resume the run.
func (s *scenario) pauseAndResume() {
	s.t.Helper()
	pause := protocol.Pause{By: "ann", Reason: "a test"}
	s.insist(protocol.PauseSignal, pause)
	shown := s.awaitPhase(protocol.PhasePaused).Pause
	require.NotNil(s.t, shown)
	pause.At = shown.At
	require.Equal(s.t, pause, *shown)
	paused := s.await(func(v observer.View) bool { return v.InFlight == 0 })
	require.Less(s.t, paused.Updated, clusterPods, "the rollout was over before Temporal could do anything")
	s.insist(protocol.ResumeSignal, protocol.Pause{By: "ann"})
}

// converged waits until the rollout has ended, and asserts that the rollout did not exceed maxUnavailable.
func (s *scenario) converged() observer.View {
	s.t.Helper()
	view := s.await(observer.Converged(clusterPods))
	s.within(clusterWindow)
	s.awaitPhase(protocol.PhaseComplete)
	worst, _ := s.watched.Worst()
	s.t.Logf("%d in flight at most, %d allowed", worst, clusterWindow)
	return view
}

// convergedInRun waits until the rollout has ended, and asserts that run is still the newest run and that
// each sidecar has restarted once.
func (s *scenario) convergedInRun(run string) {
	s.t.Helper()
	view := s.converged()
	require.Equal(s.t, run, s.run())
	require.Equal(s.t, int32(clusterPods), view.SidecarRestarts)
}

// generations returns the number of generation signals in the history of the newest run.
func (s *scenario) generations() int {
	s.t.Helper()
	signals := 0
	history := stack.temporal.GetWorkflowHistory(s.ctx, s.workflow(), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(s.t, err)
		if event.GetWorkflowExecutionSignaledEventAttributes().GetSignalName() == protocol.GenerationSignal {
			signals++
		}
	}
	return signals
}

// One of two history hosts owns the shard of the run. If a history host is lost, the other history host
// continues the run.
func TestTemporalClusterLosesAHistoryHost(t *testing.T) {
	for _, host := range []string{cluster.TemporalHistory1, cluster.TemporalHistory2} {
		t.Run(host, func(t *testing.T) {
			s, run := newClusterScenario(t)
			s.lose(host)
			s.pauseAndResume()
			s.convergedInRun(run)
		})
	}
}

// Without the matching service, no worker receives tasks, but Temporal accepts signals.
func TestTemporalClusterLosesMatching(t *testing.T) {
	s, _ := newClusterScenario(t)
	s.lose(cluster.TemporalMatching)
	before := s.generations()
	s.upgradeTo("side:v3")
	s.poll("the signal of the new generation", func() (bool, error) { return s.generations() > before, nil })
	require.NoError(t, stack.StartAgain(s.ctx, cluster.TemporalMatching))
	s.converged()
}

func TestTemporalClusterLosesItsFrontend(t *testing.T) {
	s, run := newClusterScenario(t)
	s.lose(cluster.TemporalFrontend)
	s.await(func(v observer.View) bool { return v.InFlight == 0 })
	require.NoError(t, stack.StartAgain(s.ctx, cluster.TemporalFrontend))
	s.pauseAndResume()
	s.convergedInRun(run)
}

func TestTemporalClusterOutlivesItsDatabase(t *testing.T) {
	for name, end := range map[string]func(string) error{"restarted": stack.Stop, "killed": stack.Kill} {
		t.Run(name, func(t *testing.T) {
			s, run := newClusterScenario(t)
			require.NoError(t, end(cluster.Postgres))
			s.poll("PostgreSQL to start again", func() (bool, error) {
				return stack.StartAgain(s.ctx, cluster.Postgres) == nil, nil // The start fails while old child processes of PostgreSQL run.
			})
			s.pauseAndResume()
			s.convergedInRun(run)
		})
	}
}
