package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	sdk "go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// signal waits until a run is open, and sends a signal to the run.
func (s *scenario) signal(name string, payload any) {
	s.t.Helper()
	s.poll("an open run to signal", func() (bool, error) {
		err := stack.temporal.SignalWorkflow(s.ctx, s.workflow(), "", name, payload)
		if missing := (*serviceerror.NotFound)(nil); errors.As(err, &missing) {
			return false, nil
		}
		return err == nil, err
	})
}

// pause pauses the run by signal, and returns when the run is paused and no pod is in flight.
func (s *scenario) pause(pause protocol.Pause) (paused observer.View) {
	s.t.Helper()
	s.signal(protocol.PauseSignal, pause)
	s.awaitPhase(protocol.PhasePaused)
	return s.await(func(v observer.View) bool { return v.InFlight == 0 })
}

// stillPaused asserts that the run and the status show the pause, and that no pod was upgraded after the
// pause.
func (s *scenario) stillPaused(pause protocol.Pause, paused observer.View) {
	s.t.Helper()
	status := s.awaitPhase(protocol.PhasePaused)
	require.NotNil(s.t, status.Pause)
	pause.At = status.Pause.At
	assert.Equal(s.t, &pause, status.Pause)
	assert.Equal(s.t, paused.Updated, s.watched.View().Updated, "a pod was upgraded during the pause")
	set := s.awaitSet("status to show the pause", func(set *v1alpha1.SidecarSet) bool {
		return set.Status.Rollout != nil && set.Status.Rollout.Pause != nil
	})
	assert.Equal(s.t, v1alpha1.RolloutPause{By: pause.By, Reason: pause.Reason}, *set.Status.Rollout.Pause)
	assert.Equal(s.t, paused.Updated, s.watched.View().Updated, "a pod was upgraded during the pause")
}

func TestAPauseIsNeverLostBetweenGenerations(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 12, nil)
	for round := range 20 {
		s.upgradeTo(fmt.Sprintf("side:v%d", round%2+2))
		paused := s.pause(protocol.Pause{By: "ann", Reason: fmt.Sprint(round)})
		status, err := s.status()
		require.NoError(t, err)
		require.NotNil(t, status.Pause, "round %d", round)
		require.Equal(t, paused.Updated, s.watched.View().Updated, "a pod was upgraded in pause %d", round)
		for _, name := range []string{protocol.ResumeSignal, protocol.PauseSignal, protocol.ResumeSignal} {
			s.signal(name, protocol.Pause{By: "ann"})
		}
	}
	s.await(observer.Converged(12))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
}

func TestAPauseOutlivesItsRun(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 10, nil).slow("4s")
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	pause := protocol.Pause{By: "ann", Reason: "errors in the logs"}
	paused := s.pause(pause)
	s.stillPaused(pause, paused)
	run, err := stack.temporal.DescribeWorkflowExecution(s.ctx, s.workflow(), "")
	require.NoError(t, err)
	s.terminate()
	s.poll("another run", func() (bool, error) {
		next, err := stack.temporal.DescribeWorkflowExecution(s.ctx, s.workflow(), "")
		return err == nil && next.WorkflowExecutionInfo.Execution.RunId != run.WorkflowExecutionInfo.Execution.RunId, err
	})
	s.stillPaused(pause, paused)
	s.signal(protocol.ResumeSignal, protocol.Pause{By: "bob", Reason: "no errors any more"})
	s.await(observer.Converged(10))
	s.within(2)
	s.awaitSet("status to forget the pause", func(set *v1alpha1.SidecarSet) bool { return set.Status.Rollout.Pause == nil })
	s.poll("the event that says who resumed it", func() (bool, error) {
		var events corev1.EventList
		err := stack.kube.List(s.ctx, &events)
		return slices.ContainsFunc(events.Items, func(event corev1.Event) bool {
			return event.InvolvedObject.Name == s.name && strings.HasPrefix(event.Message, "resumed by signal from bob: no errors any more; ")
		}), err
	})
}

// With maxUnavailable 100%, all pods are queued in the worker. The run answers the pause before the worker
// observes the pause. The worker then drops the writes that are not in flight.
func TestSpec7_1_APauseDropsTheWritesThatAreQueued(t *testing.T) {
	const pods = 600
	for name, pause := range map[string]func(*scenario){
		"by update": func(s *scenario) {
			handle, err := stack.temporal.UpdateWorkflow(s.ctx, sdk.UpdateWorkflowOptions{
				WorkflowID: s.workflow(), UpdateName: protocol.PauseUpdate, Args: []any{protocol.Pause{By: "ann"}},
				WaitForStage: sdk.WorkflowUpdateStageCompleted,
			})
			require.NoError(s.t, err)
			var answer protocol.PauseResult
			require.NoError(s.t, handle.Get(s.ctx, &answer))
			assert.Equal(s.t, protocol.PauseResult{Paused: true, Message: "paused; the running batch stops within seconds"}, answer)
		},
		"by spec": func(s *scenario) { s.edit(`[{"op":"replace","path":"/spec/updateStrategy/paused","value":true}]`) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, pods, maxUnavailable(pods))
			s.upgradeTo("side:v2")
			s.await(func(v observer.View) bool { return v.Updated > 0 })
			pause(s)
			s.awaitPhase(protocol.PhasePaused)
			paused := s.await(func(v observer.View) bool { return v.InFlight == 0 })
			assert.Less(t, paused.Updated, pods)
			t.Logf("%d of %d pods were written", paused.Updated, pods)
		})
	}
}

func TestAPausedSetThatIsDeletedEndsItsRun(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]func(*scenario){
		"by spec":   func(s *scenario) { s.edit(`[{"op":"replace","path":"/spec/updateStrategy/paused","value":true}]`) },
		"by signal": func(s *scenario) { s.signal(protocol.PauseSignal, protocol.Pause{By: "ann"}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScenario(t, 8, nil).slow("4s")
			s.upgradeTo("side:v2")
			s.await(func(v observer.View) bool { return v.Updated >= 2 })
			pause(s)
			s.awaitPhase(protocol.PhasePaused)
			require.NoError(t, stack.kube.Delete(s.ctx, s.set))
			var result protocol.RolloutResult
			require.NoError(t, stack.temporal.GetWorkflow(s.ctx, s.workflow(), "").Get(s.ctx, &result))
			assert.Equal(t, protocol.PhaseDeleted, result.Phase)
		})
	}
}
