package activities

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/activities/fleet"
	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func edgePolicy(spec outriggerv1.RolloutPolicySpec) *outriggerv1.RolloutPolicy {
	return &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: spec}
}

// During a rolling update of the workers, a new worker executes activities for workflows of the previous version.
// In an unknown phase, such a workflow would request the next plan immediately.
func TestSpec11_4_AWorkflowWithoutStagesSleepsWhileAStageOrAFreezeLimitsIt(t *testing.T) {
	canary := []outriggerv1.RolloutStep{{UpTo: intstr.FromInt32(1), Bake: &metav1.Duration{Duration: time.Hour}}}
	failing := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
	}
	for name, c := range map[string]struct {
		object  client.Object
		pods    []*corev1.Pod
		message string
	}{
		"a freeze": {freezeUntil(noon.Add(time.Hour)), []*corev1.Pod{webPod("a")}, frozenMessage},
		"a closed window": {edgePolicy(outriggerv1.RolloutPolicySpec{
			Windows: []outriggerv1.RolloutWindow{{Schedule: "0 1 * * *", Duration: metav1.Duration{Duration: time.Hour}}},
		}), []*corev1.Pod{webPod("a")}, "outside the windows of RolloutPolicy edge"},
		"a reached step": {edgePolicy(outriggerv1.RolloutPolicySpec{Steps: canary}), []*corev1.Pod{webPod("a", upgraded), webPod("b")}, "1 of 2 pods updated"},
		"failed pods": {edgePolicy(outriggerv1.RolloutPolicySpec{Failure: &outriggerv1.RolloutFailure{MaxFailedPods: intstr.FromInt32(0)}}),
			[]*corev1.Pod{webPod("a", upgraded, converging, failing), webPod("b")}, "1 pod failed after the upgrade"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), c.pods...)
			require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), c.object))
			next := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, SkipTrueConditions: true})
			result, again, err := next.check(t.Context())
			require.NoError(t, err)
			assert.Equal(t, protocol.PhaseWaiting, result.Phase)
			assert.Contains(t, result.Message, c.message)
			assert.Empty(t, result.Pods)
			assert.Nil(t, result.Stage)
			assert.Nil(t, result.Failure)
			assert.Nil(t, result.FrozenUntil)
			assert.Equal(t, heartbeatInterval, again, "a workflow that writes conditions does not sleep")

			cluster.clock.Step(idleTimeout)
			result, again, err = next.check(t.Context())
			require.NoError(t, err)
			assert.Zero(t, again, "the workflow sleeps")
			assert.Equal(t, protocol.PhaseWaiting, result.Phase)
		})
	}
}

func TestSpec11_4_AStepLimitsAWorkflowWithoutStages(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a"), webPod("b"))
	policy := edgePolicy(outriggerv1.RolloutPolicySpec{Steps: []outriggerv1.RolloutStep{{UpTo: intstr.FromInt32(1)}}})
	require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), policy))
	result, _, err := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2}).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseProgressing, result.Phase)
	assert.Equal(t, []string{"a"}, selectedNames(result.Pods))
	assert.Empty(t, result.Queued)
	assert.Nil(t, result.Stage)
}

func TestSpec11_4_ASupersededPlanHasTheStageOfTheSidecarSet(t *testing.T) {
	set := webSet(9)
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: set.Generation, Policy: "edge", Stage: &v1alpha1.RolloutStage{Step: 2, Steps: 3}}
	cluster := newTestCluster(t, interceptor.Funcs{}, set, webPod("a"))
	input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 999, Stages: true}
	result, _, err := cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseSuperseded, result.Phase)
	assert.Equal(t, &protocol.Stage{Generation: set.Generation, Hash: set.Annotations[v1alpha1.HashAnnotation], Policy: "edge", Steps: 3, Index: 1}, result.Stage)
	input.Stages = false
	result, _, err = cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Nil(t, result.Stage)
}

func TestSpec11_12_AnAbortNeedsNoValidPolicy(t *testing.T) {
	invalid := edgePolicy(outriggerv1.RolloutPolicySpec{Selector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}})
	gate := outriggerv1.RolloutGate{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{Address: "http://prometheus", Query: "q", Success: "value <"}}
	broken := edgePolicy(outriggerv1.RolloutPolicySpec{Gates: []outriggerv1.RolloutGate{gate}, Steps: []outriggerv1.RolloutStep{{UpTo: intstr.FromInt32(1), Gates: []string{"errors"}}}})
	for name, policy := range map[string]*outriggerv1.RolloutPolicy{"an invalid selector": invalid, "an invalid gate": broken} {
		t.Run(name, func(t *testing.T) {
			cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a"))
			require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), policy))
			input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true}
			_, _, err := cluster.newNextBatch(input).check(t.Context())
			require.ErrorContains(t, err, "RolloutPolicy edge")

			input.Stage = &protocol.Stage{Generation: 2, Aborted: &protocol.Approval{By: "ann"}}
			result, again, err := cluster.newNextBatch(input).check(t.Context())
			require.NoError(t, err)
			assert.Zero(t, again)
			assert.Contains(t, result.Failure.Reason, "ann aborted the rollout of generation 2")
			assert.Empty(t, result.Pods)
		})
	}
}

func TestSpec11_12_AnAbortNeedsNoPermit(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a"))
	cluster.Fleet = fleet.NewConnection(prometheus.NewRegistry())
	input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true}
	result, _, err := cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseFrozen, result.Phase)
	assert.Nil(t, result.Failure)

	input.Stage = &protocol.Stage{Generation: 2, Aborted: &protocol.Approval{By: "ann"}}
	result, _, err = cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Contains(t, result.Failure.Reason, "ann aborted the rollout of generation 2")
}

func TestSpec11_12_AnAbortIsPlannedDuringAPause(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a"))
	input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true, Paused: true}
	input.Stage = &protocol.Stage{Generation: 2, Done: true, Aborted: &protocol.Approval{By: "ann"}}
	result, again, err := cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Zero(t, again)
	assert.Equal(t, protocol.PhasePaused, result.Phase)
	assert.Contains(t, result.Failure.Reason, "ann aborted the rollout of generation 2")
	assert.Empty(t, result.Pods)
}

func TestSpec11_6_AResumeAcceptsThePodsThatHaveFailedByThen(t *testing.T) {
	failing := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
	}
	healthy := webPod("c", upgraded)
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a", upgraded, converging, failing), webPod("b", upgraded, converging, failing), healthy, webPod("d"))
	resumed := &protocol.Stage{Generation: 2, Policy: "edge", Steps: 1, Tolerated: 1, Accept: true, Step: &protocol.Step{UpTo: intstr.FromInt32(3), MaxFailed: new(intstr.FromInt32(0))}}
	input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true, SkipTrueConditions: true, Stage: resumed}
	next := cluster.newNextBatch(input)
	result, again, err := next.check(t.Context())
	require.NoError(t, err)
	assert.Nil(t, result.Failure)
	assert.Positive(t, again)
	assert.Equal(t, 2, result.Stage.Tolerated)
	assert.False(t, result.Stage.Accept)

	cluster.edit(healthy, func() { failing(healthy); converging(healthy) })
	cluster.sync()
	result, again, err = next.check(t.Context())
	require.NoError(t, err)
	assert.Zero(t, again)
	assert.Equal(t, &protocol.Failure{Pods: 3, Reason: result.Message}, result.Failure, "a pod that fails after the resume is not accepted")
	assert.Equal(t, 2, result.Stage.Tolerated)

	input.Paused = true
	result, _, err = cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Nil(t, result.Stage, "the next resume accepts the pods")

	resumed.Failed, input.Paused = new(5), false
	result, _, err = cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 5, result.Stage.Tolerated, "another worker observed pods that were unready for too long")
	assert.Nil(t, result.Stage.Failed)
}

func TestSpec11_6_FailedPodsStopABatch(t *testing.T) {
	failing := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
	}
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a", upgraded, converging, failing), webPod("b"))
	b := cluster.batchOf("b")
	b.input.Stage = &protocol.Stage{Generation: 2, Policy: "edge", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("100%"), MaxFailed: new(intstr.FromInt32(1))}}
	_, err := cluster.refills(b)
	require.NoError(t, err)
	assert.False(t, b.result().Failing)

	b = cluster.batchOf("b")
	b.input.Stage = &protocol.Stage{Generation: 2, Policy: "edge", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("100%"), MaxFailed: new(intstr.FromInt32(0))}}
	again, err := cluster.refills(b)
	require.NoError(t, err)
	assert.Zero(t, again)
	assert.True(t, b.result().Failing, "the run does not plan again immediately")
}

// listingPolicies counts the list requests for RolloutPolicies in lists. Each request fails with err unless err
// is nil.
func listingPolicies(lists *atomic.Int32, err error) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		if _, ok := l.(*outriggerv1.RolloutPolicyList); ok {
			lists.Add(1)
			if err != nil {
				return err
			}
		}
		return c.List(ctx, l, opts...)
	}}
}

func TestSpec11_1_ConcurrentRolloutsShareOneListOfPolicies(t *testing.T) {
	var lists atomic.Int32
	a, clock := newActivities(t, listingPolicies(&lists, nil))
	policy := edgePolicy(outriggerv1.RolloutPolicySpec{Steps: []outriggerv1.RolloutStep{{UpTo: intstr.FromInt32(1)}}})
	stages := func() *protocol.Stage {
		var plans sync.WaitGroup
		var found atomic.Pointer[protocol.Stage]
		for i := range 50 {
			plans.Go(func() {
				set := logs(2)
				set.Name = fmt.Sprint("logs-", i)
				current, err := a.newNextBatch(protocol.NextBatchInput{Generation: 2}).stage(t.Context(), set)
				assert.NoError(t, err)
				found.Store(current)
			})
		}
		plans.Wait()
		return found.Load()
	}
	assert.Nil(t, stages())
	assert.EqualValues(t, 1, lists.Load())

	clock.Step(time.Millisecond)
	require.NoError(t, a.Live.(client.Client).Create(t.Context(), policy))
	found := stages()
	require.NotNil(t, found, "a policy that was created just before the plan applies")
	assert.Equal(t, "edge", found.Policy)
	assert.EqualValues(t, 2, lists.Load())
}

func TestSpec11_1_AMissingDefinitionIsNotRequestedByEachPlan(t *testing.T) {
	var lists atomic.Int32
	missing := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "outrigger.io", Kind: "RolloutPolicy"}}
	a, clock := newActivities(t, listingPolicies(&lists, missing))
	plan := func() {
		current, err := a.newNextBatch(protocol.NextBatchInput{Generation: 2}).stage(t.Context(), logs(2))
		require.NoError(t, err)
		assert.Nil(t, current)
	}
	plan()
	clock.Step(refreshAge - time.Millisecond)
	plan()
	assert.EqualValues(t, 1, lists.Load())
	clock.Step(maxAge)
	plan()
	assert.EqualValues(t, 2, lists.Load())
}

// After a restore of etcd, the generation of the rollback has other content.
func TestSpec11_12_OtherContentWithTheSameGenerationIsNotRolledBack(t *testing.T) {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "s", Generation: 2, Annotations: map[string]string{v1alpha1.HashAnnotation: "better"}}}
	rollback := &protocol.Stage{Generation: 2, Quarantine: &protocol.Quarantine{Hash: "bad", Revision: "s-1"}}
	target, err := (&Activities{}).target(t.Context(), set, rollback)
	require.NoError(t, err)
	assert.Same(t, set, target)
}
