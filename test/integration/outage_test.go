package integration

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

func TestWorkersKilledInTheMiddle(t *testing.T) {
	s := newScenario(t, 20, nil)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 6 })
	killWorkers(t)
	startWorkers(s.ctx, t)
	s.await(observer.Converged(20))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
}

// A cancelled batch is not retried when the worker is lost, so no activity reports the writes of the batch.
func TestAPauseOutlivesTheWorkerOfTheBatch(t *testing.T) {
	s := newScenario(t, 16, func(set *v1alpha1.SidecarSet) {
		set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(1))
	})
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 3 })
	killWorkers(t)
	require.NoError(t, stack.temporal.SignalWorkflow(s.ctx, s.workflow(), "", protocol.PauseSignal, protocol.Pause{By: "ann"}))
	startWorkers(s.ctx, t)
	s.awaitPhase(protocol.PhasePaused)
	paused := s.await(func(v observer.View) bool { return v.InFlight == 0 })
	assert.Less(t, paused.Updated, 16)
	require.NoError(t, stack.temporal.SignalWorkflow(s.ctx, s.workflow(), "", protocol.ResumeSignal, protocol.Pause{By: "ann"}))
	s.await(observer.Converged(16))
	s.within(1)
	s.awaitPhase(protocol.PhaseComplete)
}

func TestTemporalKilledInTheMiddle(t *testing.T) {
	s := newScenario(t, 20, nil)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 6 })
	require.NoError(t, stack.Kill("temporal"))

	// While Temporal is unavailable, new pods are injected and the status is updated.
	s.scale(22)
	s.await(func(v observer.View) bool { return v.Pods == 22 && v.Ready == 22 })
	s.awaitSet("status without Temporal", func(set *v1alpha1.SidecarSet) bool { return set.Status.MatchedPods == 22 })
	s.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v3"}]`)
	s.watched.Expect("side:v3")
	s.awaitSet("the outage to be reported for the new generation", func(set *v1alpha1.SidecarSet) bool {
		condition := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionDegraded)
		return condition != nil && condition.Reason == v1alpha1.ReasonTemporalUnavailable && set.Status.ObservedGeneration == set.Generation
	})

	require.NoError(t, stack.StartAgain(s.ctx, "temporal"))
	s.await(observer.Converged(22))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
	s.awaitSet("the outage to be over", func(set *v1alpha1.SidecarSet) bool {
		return counts(22)(set) && meta.IsStatusConditionFalse(set.Status.Conditions, v1alpha1.ConditionDegraded)
	})
}

func TestRestartOfTheOperatorWritesNothing(t *testing.T) {
	quiet := newScenario(t, 3, nil)
	quiet.upgradeTo("side:v2")
	quiet.awaitPhase(protocol.PhaseComplete)
	// The operator records the end of a rollout after the run has ended.
	quiet.awaitSet("final status", func(set *v1alpha1.SidecarSet) bool {
		good := set.Status.LastGoodRevision()
		return counts(3)(set) && set.Status.Rollout.Generation == set.Generation &&
			good != nil && good.Hash == set.Annotations[v1alpha1.HashAnnotation]
	})
	before := quiet.stored().ResourceVersion
	require.NoError(t, stack.Stop("operator"))
	require.NoError(t, stack.StartAgain(quiet.ctx, "operator"))
	// The restarted operator reconciles all existing SidecarSets before a new SidecarSet.
	t.Run("busy", func(t *testing.T) {
		busy := newScenario(t, 1, nil)
		busy.awaitSet("the operator to work again", counts(1))
		busy.awaitPhase(protocol.PhaseComplete)
	})
	assert.Equal(t, before, quiet.stored().ResourceVersion)
}

func (s *scenario) stored() *v1alpha1.SidecarSet {
	s.t.Helper()
	return s.awaitSet("the set", func(*v1alpha1.SidecarSet) bool { return true })
}

func TestMissingWorkersAreReported(t *testing.T) {
	s := newScenario(t, 12, nil)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	killWorkers(t)
	t.Cleanup(func() { startWorkers(context.WithoutCancel(s.ctx), t) })
	var degraded *metav1.Condition
	s.awaitSet("the missing workers to be reported", func(set *v1alpha1.SidecarSet) bool {
		degraded = meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionDegraded)
		return degraded != nil && degraded.Status == metav1.ConditionTrue
	})
	assert.Equal(t, v1alpha1.ReasonWorkerUnavailable, degraded.Reason)
	assert.Contains(t, degraded.Message, s.taskQueue())
	startWorkers(s.ctx, t)
	s.await(observer.Converged(12))
	s.awaitSet("nothing to report", func(set *v1alpha1.SidecarSet) bool {
		return counts(12)(set) && meta.IsStatusConditionFalse(set.Status.Conditions, v1alpha1.ConditionDegraded)
	})
	s.within(2)
}

// taskQueue returns the task queue of this cluster.
func (s *scenario) taskQueue() string {
	s.t.Helper()
	namespace := &corev1.Namespace{}
	require.NoError(s.t, stack.kube.Get(s.ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace))
	return string(namespace.UID)
}

// A signal may contain a wrong generation.
func TestASignalOfAGenerationThatIsNotThereStopsNoLaterOne(t *testing.T) {
	wrong := protocol.GenerationInput{Generation: 999}
	for name, begin := range map[string]func(*scenario){
		"open": func(s *scenario) {
			s.edit(`[{"op":"replace","path":"/spec/updateStrategy/paused","value":true},{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"}]`)
			s.awaitPhase(protocol.PhasePaused)
			s.signal(protocol.GenerationSignal, wrong)
		},
		"idle": func(s *scenario) {
			s.edit(`[{"op":"replace","path":"/spec/updateStrategy/paused","value":true}]`)
			s.awaitSet("its counts", counts(4))
			require.NoError(s.t, stack.temporal.GetWorkflow(s.ctx, s.workflow(), "").Get(s.ctx, nil))
			set := protocol.SetReference{Name: s.set.Name, UID: s.set.UID}
			_, err := stack.temporal.SignalWithStartWorkflow(s.ctx, s.workflow(), protocol.GenerationSignal, wrong,
				sdk.StartWorkflowOptions{ID: s.workflow(), TaskQueue: s.taskQueue()},
				protocol.RolloutWorkflow, protocol.RolloutInput{SidecarSet: set, Generation: s.set.Generation})
			require.NoError(s.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScenario(t, 4, nil)
			begin(s)
			s.watched.Expect("side:v3")
			s.edit(`[{"op":"replace","path":"/spec/updateStrategy/paused","value":false},{"op":"replace","path":"/spec/containers/0/image","value":"side:v3"}]`)
			s.await(observer.Converged(4))
			s.awaitPhase(protocol.PhaseComplete)
		})
	}
}
