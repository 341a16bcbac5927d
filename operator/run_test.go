package operator

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/operator/runs"
)

// TestRuns tests how the operator reconciles runs with a real Temporal server.
func TestRuns(t *testing.T) {
	e := newTestEnv(t)
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"PausesAreMirroredAndSurviveTheRun", e.testPauseBySignal},
		{"PausesOfRunsThatEndedUnseenAreMirrored", e.testPauseUnseen},
		{"ASetThatGoesOnIsNotHeldBySignal", e.testPausedBySet},
		{"RunsOfAnotherGenerationAreSignalledTheirs", e.testMismatch},
		{"RunsOlderThanTheirPauseArePausedAgain", e.testMismatchedPause},
		{"StatusOfAnotherGenerationIsCorrected", e.testNewerStatus},
		{"SleepingRunsAreWokenWhenPodsMayMove", e.testWake},
		{"SleepingRunsAreWokenWhenNothingIsLeft", e.testWakeToEnd},
		{"Spec1_RestartWritesNothing", e.testRestart},
		{"NothingIsCalledOnceAllIsDone", e.testFinished},
		{"RunsOfDeletedSetsEnd", e.testDeletedRun},
		{"RunsOfSetsDeletedMeanwhileEnd", e.testDeletedMeanwhile},
		{"Spec8_FailingActivitiesAreReported", e.testFailingActivity},
		{"Spec8_RejectedWritesAreReported", e.testRejectedWrites},
		{"Spec8_FailingWorkflowTasksAreReported", e.testFailingTask},
		{"Spec8_MissingWorkersAreReported", e.testNoWorker},
		{"Spec8_WorkersOfAnotherVersionAreReported", e.testOtherVersion},
		{"Spec8_MissingKeysAreReported", e.testSealed},
		{"SearchAttributesAreRegisteredAgain", e.testEmptied},
	} {
		// Later parts depend on the objects of earlier parts.
		if !t.Run(part.name, part.test) {
			return
		}
	}
}

// roll creates a SidecarSet with pods, and then changes the image, so that the pods need an upgrade.
func (e *testEnv) roll(t *testing.T, name string) *v1alpha1.SidecarSet {
	t.Helper()
	set := newSet(t, name, "proxy:v1")
	require.NoError(t, e.Create(t.Context(), set))
	e.addPods(t, set, "default", name+"-1", name+"-2")
	e.await(t, name, isStarted)
	e.change(t, name, setImage("proxy:v2"))
	return e.await(t, name, isStarted)
}

// awaitRun waits until wanted accepts the newest run.
func (e *testEnv) awaitRun(t *testing.T, id string, wanted func(*assert.CollectT, *runs.Run)) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		wanted(c, e.run(c, id))
	}, soon, tick)
}

func (e *testEnv) run(t require.TestingT, id string) *runs.Run {
	description, err := e.temporal.DescribeWorkflowExecution(context.Background(), id, "")
	require.NoError(t, err)
	found, err := runs.Read(converter.GetDefaultDataConverter(), description.WorkflowExecutionInfo)
	require.NoError(t, err)
	return found
}

func (e *testEnv) signal(t *testing.T, id, signal string, payload any) {
	t.Helper()
	require.NoError(t, e.temporal.SignalWorkflow(t.Context(), id, "", signal, payload))
}

func (e *testEnv) testPauseBySignal(t *testing.T) {
	id := e.roll(t, "paused").Status.Rollout.WorkflowID
	e.signal(t, id, protocol.PauseSignal, protocol.Pause{By: "ann", Reason: "lunch"})
	want := &v1alpha1.RolloutPause{By: "ann", Reason: "lunch"}
	isPaused := func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		isStarted(c, set)
		assert.Equal(c, want, set.Status.Rollout.Pause)
		assert.Equal(c, reasonMessage{"Paused", "paused by signal from ann: lunch; 0 of 2 pods updated, 0 of them ready; 2 to go, 0 unavailable of 1 allowed"},
			reasonAndMessage(set, v1alpha1.ConditionProgressing))
	}
	e.await(t, "paused", isPaused)
	e.awaitEvent(t, "paused", "RolloutPaused", "paused by signal from ann: lunch")

	require.NoError(t, e.temporal.TerminateWorkflow(t.Context(), id, "", "test"))
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) {
		assert.True(c, found.Open())
		assert.Equal(c, &protocol.Pause{By: "ann", Reason: "lunch"}, found.Pause)
		assert.Equal(c, protocol.PhasePaused, found.Phase)
	})
	e.change(t, "paused", setImage("proxy:v3"))
	e.await(t, "paused", isPaused)
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) {
		assert.Equal(c, int64(3), found.Generation)
		assert.Equal(c, &protocol.Pause{By: "ann", Reason: "lunch"}, found.Pause)
	})
	e.signal(t, id, protocol.ResumeSignal, protocol.Pause{By: "bob", Reason: strings.Repeat("no errors any more, ", 99)})
	e.await(t, "paused", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Nil(c, set.Status.Rollout.Pause)
		hasReason(v1alpha1.ConditionProgressing, "RolloutInProgress")(c, set)
	})
	e.awaitEvent(t, "paused", "RolloutResumed", "resumed by signal from bob: no errors any more, ")
	e.signal(t, id, protocol.PauseSignal, protocol.Pause{By: "eve"})
	e.awaitEvent(t, "paused", "RolloutPaused", "paused by signal from eve")
	e.signal(t, id, protocol.PauseSignal, protocol.Pause{By: "ann", Reason: "lunch"})
	e.await(t, "paused", isPaused)
}

// A run that is paused or resumed may end before the operator reconciles again.
func (e *testEnv) testPauseUnseen(t *testing.T) {
	ids := map[string]string{}
	for _, name := range []string{resumes, resumes + "-edited", pauses + "edited"} {
		ids[name] = e.roll(t, name).Status.Rollout.WorkflowID
		e.awaitRun(t, ids[name], func(c *assert.CollectT, found *runs.Run) { assert.Equal(c, int64(2), found.Generation) })
	}
	for _, name := range []string{resumes, resumes + "-edited"} {
		e.signal(t, ids[name], protocol.PauseSignal, protocol.Pause{By: "ann"})
		e.await(t, name, hasReason(v1alpha1.ConditionProgressing, "Paused"))
	}
	require.NoError(t, e.cluster.Stop(cluster.Operator))
	for name, id := range ids {
		signal := protocol.ResumeSignal
		if strings.HasPrefix(name, pauses) {
			signal = protocol.PauseSignal
		}
		e.signal(t, id, signal, protocol.Pause{By: "bob"})
		e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) { assert.True(c, found.Completed()) })
		if strings.HasSuffix(name, "edited") {
			e.change(t, name, setImage("proxy:v3"))
		}
	}
	require.NoError(t, e.cluster.StartAgain(t.Context(), cluster.Operator))
	for name, id := range ids {
		var want *v1alpha1.RolloutPause
		if strings.HasPrefix(name, pauses) {
			want = &v1alpha1.RolloutPause{By: "bob"}
		}
		e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) { assert.True(c, found.Open()) })
		assert.Equal(t, want != nil, e.run(t, id).Pause != nil, name)
		e.await(t, name, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
			isStarted(c, set)
			assert.Equal(c, want, set.Status.Rollout.Pause)
		})
		if want == nil {
			e.awaitEvent(t, name, "RolloutResumed", "resumed by signal from bob")
		}
	}
}

// A pause by updateStrategy.paused must not be converted to a pause by signal in the run of the next
// generation.
func (e *testEnv) testPausedBySet(t *testing.T) {
	set := newSet(t, suspend, "proxy:v1")
	require.NoError(t, e.Create(t.Context(), set))
	e.addPods(t, set, "default", suspend+"-1", suspend+"-2")
	e.await(t, suspend, isStarted)
	pause := func(paused bool) func(*v1alpha1.SidecarSet) {
		return func(set *v1alpha1.SidecarSet) {
			set.Spec.UpdateStrategy.Paused = paused
			setImage("proxy:v2")(set)
		}
	}
	id := e.change(t, suspend, pause(true)).Status.Rollout.WorkflowID
	e.await(t, suspend, hasReason(v1alpha1.ConditionProgressing, "Paused"))
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) { assert.Equal(c, protocol.PhasePaused, found.Phase) })
	e.change(t, suspend, pause(false))
	e.awaitEvent(t, suspend, "RolloutResumed", "")
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) {
		assert.Equal(c, int64(3), found.Generation)
		assert.Nil(c, found.Pause)
	})
	var events eventsv1.EventList
	require.NoError(t, e.List(t.Context(), &events))
	for _, event := range events.Items {
		if event.Regarding.Name == suspend {
			assert.NotContains(t, event.Note, "by signal")
		}
	}
}

func (e *testEnv) testMismatch(t *testing.T) {
	id := e.roll(t, "mistyped").Status.Rollout.WorkflowID
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) { assert.Equal(c, int64(2), found.Generation) })
	e.signal(t, id, protocol.GenerationSignal, protocol.GenerationInput{Generation: 999})
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) { assert.Equal(c, int64(999), found.Generation) })
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) { assert.Equal(c, int64(2), found.Generation) })
}

// After a restore of etcd, the generation in status may be newer than the generation of the SidecarSet.
func (e *testEnv) testNewerStatus(t *testing.T) {
	set := e.roll(t, "rewound")
	set.Status.Rollout.Generation = 99
	require.NoError(t, e.Status().Update(t.Context(), set))
	e.await(t, "rewound", isStarted)
}

// After Temporal is restored from a backup, the run may have an older generation than status, and may lack the
// pause that status records.
func (e *testEnv) testMismatchedPause(t *testing.T) {
	id := e.roll(t, "restored").Status.Rollout.WorkflowID
	e.signal(t, id, protocol.PauseSignal, protocol.Pause{By: "ann"})
	e.await(t, "restored", hasReason(v1alpha1.ConditionProgressing, "Paused"))
	e.signal(t, id, protocol.ResumeSignal, protocol.Pause{})
	e.signal(t, id, protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) { assert.Equal(c, int64(1), found.Generation) })
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) {
		assert.Equal(c, int64(2), found.Generation)
		assert.Equal(c, &protocol.Pause{By: "ann"}, found.Pause)
	})
}

func (e *testEnv) testWake(t *testing.T) {
	id := e.roll(t, sleeps).Status.Rollout.WorkflowID
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) { assert.Equal(c, int64(2), found.Generation) })
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Contains(c, e.signals(t, id), int64(2))
	}, soon, tick)
}

// The last pods of a rollout may become ready after the run has begun to sleep.
func (e *testEnv) testWakeToEnd(t *testing.T) {
	name := sleeps + "-last"
	set := newSet(t, name, "proxy:v1")
	require.NoError(t, e.Create(t.Context(), set))
	id := e.await(t, name, isStarted).Status.Rollout.WorkflowID
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Contains(c, e.signals(t, id), int64(1))
	}, soon, tick)
}

// testFinished counts the calls of an operator after all rollouts have ended.
func (e *testEnv) testFinished(t *testing.T) {
	for _, name := range []string{"paused", resumes, resumes + "-edited", pauses + "edited", suspend, "mistyped", "restored", "rewound", sleeps} {
		e.change(t, name, func(set *v1alpha1.SidecarSet) {
			set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
		})
		e.await(t, name, isStarted)
		e.signal(t, e.await(t, name, isStarted).Status.Rollout.WorkflowID, protocol.ResumeSignal, protocol.Pause{})
		e.await(t, name, func(c *assert.CollectT, set *v1alpha1.SidecarSet) { assert.Nil(c, set.Status.Rollout.Pause) })
	}
	e.awaitMatchingRuns(t)
	require.NoError(t, e.cluster.Stop(cluster.Operator))
	require.NoError(t, e.cluster.StartAgain(t.Context(), cluster.Operator))
	e.awaitAllSeen(t)
	body := e.metrics(t)
	assert.NotContains(t, body, `outrigger_temporal_calls_total{operation="DescribeWorkflowExecution"`)
	assert.NotContains(t, body, `outrigger_temporal_calls_total{operation="SignalW`)
}

// awaitMatchingRuns waits until every open run has the generation of its SidecarSet, because a starting
// operator checks each run that has another generation.
func (e *testEnv) awaitMatchingRuns(t *testing.T) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		list, err := e.temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: cluster.TemporalNamespace, Query: "ExecutionStatus='Running'",
		})
		require.NoError(c, err)
		for _, info := range list.GetExecutions() {
			reference, ok := runs.ParseWorkflowID(info.GetExecution().GetWorkflowId())
			require.True(c, ok)
			found, err := runs.Read(converter.GetDefaultDataConverter(), info)
			require.NoError(c, err)
			var set v1alpha1.SidecarSet
			require.NoError(c, client.IgnoreNotFound(e.Get(t.Context(), client.ObjectKey{Name: reference.Name}, &set)))
			assert.False(c, set.UID == reference.UID && found.GenerationMismatch(&set), reference.Name)
		}
	}, soon, tick)
}

func (e *testEnv) testDeletedRun(t *testing.T) {
	id := e.roll(t, leaving).Status.Rollout.WorkflowID
	require.NoError(t, e.Delete(t.Context(), &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: leaving}}))
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) {
		assert.Equal(c, enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, found.Status)
	})
}

func (e *testEnv) testDeletedMeanwhile(t *testing.T) {
	id := e.roll(t, leaving+"-2").Status.Rollout.WorkflowID
	// The SidecarSet is deleted and recreated, so the run is found by the name and the UID of the SidecarSet.
	require.NoError(t, e.cluster.Stop(cluster.Operator))
	require.NoError(t, e.Delete(t.Context(), &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: leaving + "-2"}}))
	require.NoError(t, e.Create(t.Context(), newSet(t, leaving+"-2", "proxy:v1")))
	require.NoError(t, e.cluster.StartAgain(t.Context(), cluster.Operator))
	e.awaitRun(t, id, func(c *assert.CollectT, found *runs.Run) {
		assert.Equal(c, enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, found.Status)
	})
	again := e.await(t, leaving+"-2", isStarted).Status.Rollout.WorkflowID
	assert.NotEqual(t, id, again)
	e.awaitRun(t, again, func(c *assert.CollectT, found *runs.Run) { assert.True(c, found.Open()) })
}

func (e *testEnv) testFailingActivity(t *testing.T) {
	e.roll(t, fails3)
	want := reasonMessage{"RolloutFailing", "activity NextBatch fails repeatedly: sidecarsets.apps.kruise.io is forbidden (it is retried; see the logs of the workers); see the attempts: kubectl sidecarset open " + fails3}
	got := e.await(t, fails3, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, want, reasonAndMessage(set, v1alpha1.ConditionDegraded))
	})
	assert.Equal(t, "RolloutFailing", reasonAndMessage(got, v1alpha1.ConditionProgressing).reason)
}

func (e *testEnv) testRejectedWrites(t *testing.T) {
	e.roll(t, rejects)
	want := reasonMessage{"RolloutFailing", "the write of pods such as default/unwritten-1 fails repeatedly: pods is forbidden (it is retried; see the logs of the workers); see the attempts: kubectl sidecarset open " + rejects}
	e.await(t, rejects, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, want, reasonAndMessage(set, v1alpha1.ConditionDegraded))
	})
	e.awaitEvent(t, rejects, want.reason, want.message)
}

func (e *testEnv) testFailingTask(t *testing.T) {
	e.roll(t, panics)
	want := reasonMessage{"RolloutFailing", "the workflow task of the run fails repeatedly (it is retried; see the logs of the workers); see the attempts: kubectl sidecarset open " + panics}
	e.await(t, panics, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, want, reasonAndMessage(set, v1alpha1.ConditionDegraded))
	})
}

func (e *testEnv) testNoWorker(t *testing.T) {
	e.worker.Stop()
	e.roll(t, "unattended")
	got := e.await(t, "unattended", hasReason(v1alpha1.ConditionDegraded, "WorkerUnavailable"))
	assert.Equal(t, "WorkerUnavailable", reasonAndMessage(got, v1alpha1.ConditionProgressing).reason)
	assert.Contains(t, reasonAndMessage(got, v1alpha1.ConditionDegraded).message, e.taskQueue)

	e.awaitEvent(t, "unattended", "WorkerUnavailable", "Temporal responds, but no worker claims the tasks")
	e.await(t, fails3, hasReason(v1alpha1.ConditionDegraded, "WorkerUnavailable"))
	e.testRestart(t)
	e.work(t)
	e.await(t, "unattended", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		hasReason(v1alpha1.ConditionDegraded, "AsExpected")(c, set)
		hasReason(v1alpha1.ConditionProgressing, "RolloutInProgress")(c, set)
	})
}

func (e *testEnv) testOtherVersion(t *testing.T) {
	e.worker.Stop()
	e.workAs(t, "v1")
	e.roll(t, "versions")
	e.awaitUnavailable(t, "versions", "no worker of the current version (unversioned) claims the tasks", "poll the task queue (stubs:v1)", "set-current-version")
	e.setCurrent(t, "v1")
	e.await(t, "versions", hasReason(v1alpha1.ConditionDegraded, "AsExpected"))

	// Temporal lists stopped workers for several minutes.
	e.worker.Stop()
	e.workAs(t, "v2")
	e.roll(t, "versions-2")
	for _, name := range []string{"versions-2", fails3} {
		e.awaitUnavailable(t, name, "no worker of the current version (stubs:v1) claims the tasks", "stubs:v2")
	}
	e.testRestart(t)

	e.worker.Stop()
	e.work(t)
	e.roll(t, "versions-3")
	e.awaitUnavailable(t, "versions-3", "no worker of the current version (stubs:v1) claims the tasks", "unversioned")
	e.setCurrent(t, "")
	for _, name := range []string{"versions-2", "versions-3"} {
		e.await(t, name, hasReason(v1alpha1.ConditionDegraded, "AsExpected"))
	}
	e.await(t, fails3, hasReason(v1alpha1.ConditionDegraded, "RolloutFailing"))
}

func (e *testEnv) awaitUnavailable(t *testing.T, name string, parts ...string) {
	t.Helper()
	e.await(t, name, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		degraded := reasonAndMessage(set, v1alpha1.ConditionDegraded)
		assert.Equal(c, "WorkerUnavailable", degraded.reason)
		for _, part := range parts {
			assert.Contains(c, degraded.message, part)
		}
		assert.Equal(c, "WorkerUnavailable", reasonAndMessage(set, v1alpha1.ConditionProgressing).reason)
	})
}

// The operator cannot decrypt the memo of the run, because the operator has no payload key.
func (e *testEnv) testSealed(t *testing.T) {
	id := e.roll(t, sealed).Status.Rollout.WorkflowID
	e.signal(t, id, protocol.PauseSignal, protocol.Pause{By: "ann"})
	want := reasonMessage{"RunUnreadable", "the operator cannot read the pause of the run: memo hold: encoding binary/encrypted: " +
		"payload encoding is not supported (give it the payload keys that the workers have: --temporal-payload-key-dir); check it: kubectl sidecarset check"}
	got := e.await(t, sealed, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, want, reasonAndMessage(set, v1alpha1.ConditionDegraded))
	})
	assert.Equal(t, "RunUnreadable", reasonAndMessage(got, v1alpha1.ConditionProgressing).reason)
	e.awaitEvent(t, sealed, "RunUnreadable", want.message)
	e.testRestart(t)
	e.signal(t, id, protocol.ResumeSignal, protocol.Pause{})
	e.await(t, sealed, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		hasReason(v1alpha1.ConditionDegraded, "AsExpected")(c, set)
		hasReason(v1alpha1.ConditionProgressing, "RolloutInProgress")(c, set)
	})
}

// A user may remove search attributes while Temporal is available.
func (e *testEnv) testEmptied(t *testing.T) {
	_, err := e.temporal.OperatorService().RemoveSearchAttributes(t.Context(), &operatorservice.RemoveSearchAttributesRequest{
		Namespace: cluster.TemporalNamespace, SearchAttributes: []string{protocol.RolloutPhaseAttribute}})
	require.NoError(t, err)
	e.roll(t, "emptied")
}
