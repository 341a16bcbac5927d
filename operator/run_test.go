package operator

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
)

// TestRuns tests how the operator reconciles runs, on a real Temporal.
func TestRuns(t *testing.T) {
	b := newBench(t)
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"HoldsAreMirroredAndSurviveTheRun", b.testHold},
		{"RunsOfAnotherGenerationAreSignalledTheirs", b.testMismatch},
		{"RunsOlderThanTheirHoldAreHeldAgain", b.testMismatchedHold},
		{"StatusOfAnotherGenerationIsCorrected", b.testNewerStatus},
		{"SleepingRunsAreWokenWhenPodsMayMove", b.testWake},
		{"Spec1_RestartWritesNothing", b.testRestart},
		{"NothingIsCalledOnceAllIsDone", b.testFinished},
		{"RunsOfDeletedSetsEnd", b.testDeletedRun},
		{"RunsOfSetsDeletedMeanwhileEnd", b.testDeletedMeanwhile},
		{"Spec8_FailingActivitiesAreReported", b.testFailingActivity},
		{"Spec8_RefusedWritesAreReported", b.testRefusedWrites},
		{"Spec8_FailingWorkflowTasksAreReported", b.testFailingTask},
		{"Spec8_MissingWorkersAreReported", b.testNoWorker},
		{"SearchAttributesAreRegisteredAgain", b.testEmptied},
	} {
		// Later parts build on what earlier ones leave.
		if !t.Run(part.name, part.test) {
			return
		}
	}
}

// roll creates a set with pods and gives it a version that they lack.
func (b *bench) roll(t *testing.T, name string) *v1alpha1.SidecarSet {
	t.Helper()
	set := newSet(t, name, "proxy:v1")
	require.NoError(t, b.Create(t.Context(), set))
	b.addPods(t, set, "default", name+"-1", name+"-2")
	b.await(t, name, isStarted)
	b.change(t, name, setImage("proxy:v2"))
	return b.await(t, name, isStarted)
}

// awaitRun waits until the newest run is as wanted.
func (b *bench) awaitRun(t *testing.T, id string, wanted func(*assert.CollectT, *run)) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		wanted(c, b.run(c, id))
	}, soon, tick)
}

func (b *bench) run(t require.TestingT, id string) *run {
	description, err := b.temporal.DescribeWorkflowExecution(context.Background(), id, "")
	require.NoError(t, err)
	found, err := readRun(description.WorkflowExecutionInfo)
	require.NoError(t, err)
	return found
}

func (b *bench) signal(t *testing.T, id, signal string, payload any) {
	t.Helper()
	require.NoError(t, b.temporal.SignalWorkflow(t.Context(), id, "", signal, payload))
}

func (b *bench) testHold(t *testing.T) {
	id := b.roll(t, "held").Status.Rollout.WorkflowID
	b.signal(t, id, protocol.PauseSignal, protocol.Hold{Who: "ann", Why: "lunch"})
	want := &v1alpha1.RolloutHold{Who: "ann", Why: "lunch"}
	isHeld := func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		isStarted(c, set)
		assert.Equal(c, want, set.Status.Rollout.Hold)
		assert.Equal(c, reasonMessage{"Paused", "paused by signal from ann: lunch; 0 of 2 pods updated, 0 of them ready; 2 to go, 0 unavailable of 1 allowed"},
			reasonAndMessage(set, v1alpha1.ConditionProgressing))
	}
	b.await(t, "held", isHeld)

	require.NoError(t, b.temporal.TerminateWorkflow(t.Context(), id, "", "test"))
	b.awaitRun(t, id, func(c *assert.CollectT, found *run) {
		assert.True(c, found.open())
		assert.Equal(c, &protocol.Hold{Who: "ann", Why: "lunch"}, found.hold)
		assert.Equal(c, protocol.PhasePaused, found.phase)
	})
	b.change(t, "held", setImage("proxy:v3"))
	b.await(t, "held", isHeld)
	b.awaitRun(t, id, func(c *assert.CollectT, found *run) {
		assert.Equal(c, int64(3), found.generation)
		assert.Equal(c, &protocol.Hold{Who: "ann", Why: "lunch"}, found.hold)
	})
	b.signal(t, id, protocol.ResumeSignal, protocol.Hold{Who: "bob"})
	b.await(t, "held", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Nil(c, set.Status.Rollout.Hold)
		hasReason(v1alpha1.ConditionProgressing, "RolloutInProgress")(c, set)
	})
	b.signal(t, id, protocol.PauseSignal, protocol.Hold{Who: "ann", Why: "lunch"})
	b.await(t, "held", isHeld)
}

func (b *bench) testMismatch(t *testing.T) {
	id := b.roll(t, "mistyped").Status.Rollout.WorkflowID
	b.awaitRun(t, id, func(c *assert.CollectT, found *run) { assert.Equal(c, int64(2), found.generation) })
	b.signal(t, id, protocol.GenerationSignal, protocol.GenerationInput{Generation: 999})
	b.awaitRun(t, id, func(c *assert.CollectT, found *run) { assert.Equal(c, int64(999), found.generation) })
	b.awaitRun(t, id, func(c *assert.CollectT, found *run) { assert.Equal(c, int64(2), found.generation) })
}

// An etcd that comes back from a backup knows an older set than status did.
func (b *bench) testNewerStatus(t *testing.T) {
	set := b.roll(t, "rewound")
	set.Status.Rollout.Generation = 99
	require.NoError(t, b.Status().Update(t.Context(), set))
	b.await(t, "rewound", isStarted)
}

// A Temporal that comes back from a backup knows an older run.
func (b *bench) testMismatchedHold(t *testing.T) {
	id := b.roll(t, "restored").Status.Rollout.WorkflowID
	b.signal(t, id, protocol.PauseSignal, protocol.Hold{Who: "ann"})
	b.await(t, "restored", hasReason(v1alpha1.ConditionProgressing, "Paused"))
	b.signal(t, id, protocol.ResumeSignal, protocol.Hold{})
	b.signal(t, id, protocol.GenerationSignal, protocol.GenerationInput{Generation: 1})
	b.awaitRun(t, id, func(c *assert.CollectT, found *run) { assert.Equal(c, int64(1), found.generation) })
	b.awaitRun(t, id, func(c *assert.CollectT, found *run) {
		assert.Equal(c, int64(2), found.generation)
		assert.Equal(c, &protocol.Hold{Who: "ann"}, found.hold)
	})
}

func (b *bench) testWake(t *testing.T) {
	id := b.roll(t, sleeps).Status.Rollout.WorkflowID
	b.awaitRun(t, id, func(c *assert.CollectT, found *run) { assert.Equal(c, int64(2), found.generation) })
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Contains(c, b.signals(t, id), int64(2))
	}, soon, tick)
}

// testFinished counts the calls of an operator that has nothing left to do.
func (b *bench) testFinished(t *testing.T) {
	for _, name := range []string{"held", "mistyped", "restored", "rewound", sleeps} {
		b.change(t, name, func(set *v1alpha1.SidecarSet) {
			set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
		})
		b.await(t, name, isStarted)
		b.signal(t, b.await(t, name, isStarted).Status.Rollout.WorkflowID, protocol.ResumeSignal, protocol.Hold{})
		b.await(t, name, func(c *assert.CollectT, set *v1alpha1.SidecarSet) { assert.Nil(c, set.Status.Rollout.Hold) })
	}
	require.NoError(t, b.cluster.Stop(cluster.Operator))
	require.NoError(t, b.cluster.StartAgain(t.Context(), cluster.Operator))
	b.awaitAllSeen(t)
	body := b.metrics(t)
	assert.NotContains(t, body, `outrigger_temporal_calls_total{operation="DescribeWorkflowExecution"`)
	assert.NotContains(t, body, `outrigger_temporal_calls_total{operation="SignalW`)
}

func (b *bench) testDeletedRun(t *testing.T) {
	id := b.roll(t, leaving).Status.Rollout.WorkflowID
	require.NoError(t, b.Delete(t.Context(), &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: leaving}}))
	b.awaitRun(t, id, func(c *assert.CollectT, found *run) {
		assert.Equal(c, enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, found.status)
	})
}

func (b *bench) testDeletedMeanwhile(t *testing.T) {
	id := b.roll(t, leaving+"-2").Status.Rollout.WorkflowID
	// Deleted and made requeueAfter: the name alone is not enough.
	require.NoError(t, b.cluster.Stop(cluster.Operator))
	require.NoError(t, b.Delete(t.Context(), &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: leaving + "-2"}}))
	require.NoError(t, b.Create(t.Context(), newSet(t, leaving+"-2", "proxy:v1")))
	require.NoError(t, b.cluster.StartAgain(t.Context(), cluster.Operator))
	b.awaitRun(t, id, func(c *assert.CollectT, found *run) {
		assert.Equal(c, enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, found.status)
	})
	again := b.await(t, leaving+"-2", isStarted).Status.Rollout.WorkflowID
	assert.NotEqual(t, id, again)
	b.awaitRun(t, again, func(c *assert.CollectT, found *run) { assert.True(c, found.open()) })
}

func (b *bench) testFailingActivity(t *testing.T) {
	b.roll(t, fails3)
	want := reasonMessage{"RolloutFailing", "activity NextBatch fails again and again: sidecarsets.apps.kruise.io is forbidden (it is tried again; see the logs of the workers)"}
	got := b.await(t, fails3, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, want, reasonAndMessage(set, v1alpha1.ConditionDegraded))
	})
	assert.Equal(t, "RolloutFailing", reasonAndMessage(got, v1alpha1.ConditionProgressing).reason)
}

func (b *bench) testRefusedWrites(t *testing.T) {
	b.roll(t, refuses)
	want := reasonMessage{"RolloutFailing", "the write of pods such as default/unwritten-1 fails again and again: pods is forbidden (it is tried again; see the logs of the workers)"}
	b.await(t, refuses, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, want, reasonAndMessage(set, v1alpha1.ConditionDegraded))
	})
}

func (b *bench) testFailingTask(t *testing.T) {
	b.roll(t, panics)
	want := reasonMessage{"RolloutFailing", "the workflow task of the run fails again and again (it is tried again; see the logs of the workers)"}
	b.await(t, panics, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, want, reasonAndMessage(set, v1alpha1.ConditionDegraded))
	})
}

func (b *bench) testNoWorker(t *testing.T) {
	b.worker.Stop()
	b.roll(t, "unattended")
	got := b.await(t, "unattended", hasReason(v1alpha1.ConditionDegraded, "WorkerUnavailable"))
	assert.Equal(t, "WorkerUnavailable", reasonAndMessage(got, v1alpha1.ConditionProgressing).reason)
	assert.Contains(t, reasonAndMessage(got, v1alpha1.ConditionDegraded).message, b.taskQueue)

	b.testRestart(t)
	b.work(t)
	b.await(t, "unattended", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		hasReason(v1alpha1.ConditionDegraded, "AsExpected")(c, set)
		hasReason(v1alpha1.ConditionProgressing, "RolloutInProgress")(c, set)
	})
}

// Search attributes may be removed while Temporal answers.
func (b *bench) testEmptied(t *testing.T) {
	_, err := b.temporal.OperatorService().RemoveSearchAttributes(t.Context(), &operatorservice.RemoveSearchAttributesRequest{
		Namespace: cluster.TemporalNamespace, SearchAttributes: []string{protocol.RolloutPhaseAttribute}})
	require.NoError(t, err)
	b.roll(t, "emptied")
}
