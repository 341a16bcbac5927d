package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
	"github.com/outrigger/outrigger/internal/record"
)

func TestRolloutUpgradesEveryPodWithinMaxUnavailable(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 20, nil)
	s.awaitSet("counts of the injected pods", counts(20))
	s.upgradeTo("side:v2")
	out, err := kubectl(s.ctx, "", "wait", "sidecarset/"+s.name, "--for=condition=Progressing=False", "--timeout=2m")
	require.NoError(t, err, out)
	set := &v1alpha1.SidecarSet{}
	require.NoError(t, stack.kube.Get(s.ctx, client.ObjectKeyFromObject(s.set), set))
	require.True(t, counts(20)(set), "the condition came before its counts: %+v", set.Status)
	view := s.await(observer.Converged(20))
	s.within(2)
	assert.Equal(t, int32(20), view.SidecarRestarts)
	status := s.awaitPhase(protocol.PhaseComplete)
	assert.Equal(t, 20, status.Upgraded)
	assert.Equal(t, set.Generation, set.Status.Rollout.Generation)
	assert.Equal(t, s.workflow(), set.Status.Rollout.WorkflowID)

	var pods corev1.PodList
	require.NoError(t, stack.kube.List(s.ctx, &pods, client.InNamespace(s.name)))
	for _, pod := range pods.Items {
		entries, err := record.Hashes(pod.Annotations)
		require.NoError(t, err)
		assert.Equal(t, set.Annotations[v1alpha1.HashAnnotation], entries[s.name].Hash)
		assert.Equal(t, set.Status.LatestRevision, entries[s.name].ControllerRevision)
	}
}

func TestPodsThatComeAndGoStopNothing(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 12, nil)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	s.scale(20)
	s.await(func(v observer.View) bool { return v.Updated >= 6 })
	var pods corev1.PodList
	require.NoError(t, stack.kube.List(s.ctx, &pods, client.InNamespace(s.name)))
	for i := range pods.Items[:4] {
		require.NoError(t, client.IgnoreNotFound(stack.kube.Delete(s.ctx, &pods.Items[i])))
	}
	s.await(observer.Converged(20))
	s.within(2)
	s.awaitSet("counts", counts(20))
}

func TestNewPodsGetTheNewImageDuringARollout(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 2, func(set *v1alpha1.SidecarSet) { set.Spec.UpdateStrategy.Paused = true })
	s.upgradeTo("side:v2")
	s.awaitPhase(protocol.PhasePaused)
	s.poll("the webhook to observe the edit", func() (bool, error) { return sidecars(s.dryRun(1))["side:v2"] == 1, nil })
	s.scale(5)
	view := s.await(func(v observer.View) bool { return v.Pods == 5 && v.Ready == 5 })
	assert.Equal(t, 3, view.Updated)
}

func TestSpec7_2_CanaryUpgradesOnlyItsPods(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 5, nil)
	var pods corev1.PodList
	require.NoError(t, stack.kube.List(s.ctx, &pods, client.InNamespace(s.name)))
	pod := &pods.Items[3]
	require.NoError(t, stack.kube.Patch(s.ctx, pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"canary":"true"}}}`))))
	s.watched.Expect("side:v2")
	s.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"},
		{"op":"add","path":"/spec/updateStrategy/selector","value":{"matchLabels":{"canary":"true"}}}]`)
	s.awaitPhase(protocol.PhaseComplete)
	assert.Equal(t, 1, s.watched.View().Updated)
	require.NoError(t, stack.kube.Get(s.ctx, client.ObjectKeyFromObject(pod), pod))
	assert.Equal(t, "side:v2", pod.Spec.Containers[0].Image)
}

func TestSpec7_4_PartitionKeepsPodsUntilItIsLowered(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 5, nil)
	s.watched.Expect("side:v2")
	s.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"},{"op":"replace","path":"/spec/updateStrategy/partition","value":"60%"}]`)
	s.awaitPhase(protocol.PhasePartitionReached)
	assert.Equal(t, 2, s.watched.View().Updated)
	s.edit(`[{"op":"replace","path":"/spec/updateStrategy/partition","value":0}]`)
	s.await(observer.Converged(5))
	s.awaitPhase(protocol.PhaseComplete)
	s.within(2)
}

func TestSpec7_1_NotUpdateLeavesPodsAlone(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 3, func(set *v1alpha1.SidecarSet) {
		set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
	})
	s.upgradeTo("side:v2")
	s.awaitPhase(protocol.PhaseNotUpdate)
	set := s.awaitSet("fresh counts", func(set *v1alpha1.SidecarSet) bool { return set.Status.ObservedGeneration == set.Generation })
	assert.Equal(t, []int32{3, 0, 3}, []int32{set.Status.MatchedPods, set.Status.UpdatedPods, set.Status.ReadyPods})
	assert.Zero(t, s.watched.View().Updated)
}

func TestSpec7_2_PodsThatDifferInMoreThanImagesGetTheirConditionAndAreLeft(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 3, nil)
	s.watched.Expect("side:v2")
	s.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"},{"op":"add","path":"/spec/containers/0/command","value":["sleep"]}]`)
	status := s.awaitPhase(protocol.PhaseComplete)
	assert.Equal(t, 3, status.Counts.NotUpgradable)
	assert.Zero(t, s.watched.View().Updated)
	conditions := func() (conditions []string) {
		var pods corev1.PodList
		require.NoError(t, stack.kube.List(s.ctx, &pods, client.InNamespace(s.name)))
		for _, pod := range pods.Items {
			for _, c := range pod.Status.Conditions {
				if c.Type == v1alpha1.UpgradableCondition {
					conditions = append(conditions, fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message))
				}
			}
		}
		return conditions
	}
	cannot := fmt.Sprintf(`False UpdateImmutableField {"%s":false}`, s.name)
	assert.Equal(t, []string{cannot, cannot, cannot}, conditions())

	// If the pods can be upgraded to a later generation in place, the condition becomes True.
	s.edit(`[{"op":"remove","path":"/spec/containers/0/command"}]`)
	s.await(observer.Converged(3))
	s.awaitPhase(protocol.PhaseComplete)
	can := fmt.Sprintf(`True AllSidecarsetUpgradable {"%s":true}`, s.name)
	assert.Equal(t, []string{can, can, can}, conditions())
}

func TestTwoEditsASecondApartLeaveOneRunAndTheNewerWins(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 20, nil)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	s.upgradeTo("side:v3")
	s.await(observer.Converged(20))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)

	generations := map[int64][]enums.WorkflowExecutionStatus{}
	s.poll("both generations in the list of runs", func() (bool, error) {
		clear(generations)
		list, err := stack.temporal.ListWorkflow(s.ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Query: "SidecarSet = '" + s.name + "' AND SidecarSetGeneration > 1",
		})
		if err != nil {
			return false, err
		}
		for _, run := range list.Executions {
			var generation int64
			if err := unpack(run.SearchAttributes.IndexedFields[protocol.GenerationAttribute], &generation); err != nil {
				return false, err
			}
			generations[generation] = append(generations[generation], run.Status)
		}
		return len(generations) == 2 && generations[3][0] == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, nil
	})
	assert.Equal(t, []enums.WorkflowExecutionStatus{enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW}, generations[2])
	assert.Len(t, generations[3], 1)
}

func TestSignalsPauseAndResumeAlsoWithoutAnyInput(t *testing.T) {
	t.Parallel()
	s := newKubeletScenario(t, 10, map[string]string{readyAfter: "2s"}, nil)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	out, err := temporal(s.ctx, "workflow", "signal", "--workflow-id", s.workflow(), "--name", protocol.PauseSignal)
	require.NoError(t, err, out)
	s.awaitPhase(protocol.PhasePaused)
	paused := s.await(func(v observer.View) bool { return v.InFlight == 0 })
	assert.Less(t, paused.Updated, 10)
	s.awaitSet("condition Progressing to say that it is paused", func(set *v1alpha1.SidecarSet) bool {
		c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
		return c != nil && c.Reason == v1alpha1.ReasonPaused && strings.HasPrefix(c.Message, "paused by signal")
	})
	assert.Equal(t, paused.Updated, s.watched.View().Updated, "a pod was upgraded during the pause")
	out, err = temporal(s.ctx, "workflow", "signal", "--workflow-id", s.workflow(), "--name", protocol.ResumeSignal, "--input", `{"who":"ann"}`)
	require.NoError(t, err, out)
	s.await(observer.Converged(10))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
	for _, reason := range []string{"RolloutPaused", "RolloutResumed"} {
		s.poll("event "+reason, func() (bool, error) {
			out, err := kubectl(s.ctx, "", "get", "events", "-A", "--field-selector", "involvedObject.name="+s.name+",reason="+reason, "-o", "name")
			return strings.Contains(out, "event"), err
		})
	}
}

func TestAPauseEndsTheBatchInProgressWhichReportsItsWrites(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 12, func(set *v1alpha1.SidecarSet) {
		set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(1))
	})
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	require.NoError(t, stack.temporal.SignalWorkflow(s.ctx, s.workflow(), "", protocol.PauseSignal, protocol.Pause{By: "ann"}))
	s.awaitPhase(protocol.PhasePaused)
	history := stack.temporal.GetWorkflowHistory(s.ctx, s.workflow(), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	scheduled, cut := int64(0), false
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		if asked := event.GetActivityTaskCancelRequestedEventAttributes(); asked != nil {
			scheduled = asked.ScheduledEventId
		}
		completed := event.GetActivityTaskCompletedEventAttributes()
		cut = cut || completed != nil && scheduled != 0 && completed.ScheduledEventId == scheduled
	}
	assert.True(t, cut, "no batch was asked to end, and ended with its result")
	require.NoError(t, stack.temporal.SignalWorkflow(s.ctx, s.workflow(), "", protocol.ResumeSignal, protocol.Pause{By: "ann"}))
	s.await(observer.Converged(12))
	s.within(1)
}

func TestDeletedSetEndsItsRun(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 10, nil).slow("4s")
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	require.NoError(t, stack.kube.Delete(s.ctx, s.set))
	var result protocol.RolloutResult
	require.NoError(t, stack.temporal.GetWorkflow(s.ctx, s.workflow(), "").Get(s.ctx, &result))
	assert.Equal(t, protocol.PhaseDeleted, result.Phase)
	s.within(2)
}

func TestSpec6_RevisionsAreKeptAndCollected(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 1, nil)
	first := s.awaitSet("first revision", counts(1)).Status.LatestRevision
	s.upgradeTo("side:v2")
	s.awaitSet("second revision", func(set *v1alpha1.SidecarSet) bool { return counts(1)(set) && set.Status.LatestRevision != first })
	s.upgradeTo("side:v1")
	s.awaitSet("first revision again", func(set *v1alpha1.SidecarSet) bool { return counts(1)(set) && set.Status.LatestRevision == first })
	names, err := kubectl(s.ctx, "", "get", "controllerrevisions", "-n", "kruise-system", "-l", "kruise.io/sidecarset-name="+s.name,
		"--sort-by=.revision", "-o", "jsonpath={.items[*].revision}")
	require.NoError(t, err, names)
	assert.Equal(t, "2 3", names)
	require.NoError(t, stack.kube.Delete(s.ctx, s.set))
	s.poll("revisions to be collected", func() (bool, error) {
		left, err := kubectl(s.ctx, "", "get", "controllerrevisions", "-n", "kruise-system", "-l", "kruise.io/sidecarset-name="+s.name, "-o", "name")
		return left == "", err
	})
}

func TestNamespaceLabelsDecideLive(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 0, func(set *v1alpha1.SidecarSet) {
		set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	})
	require.NoError(t, stack.kube.Create(s.ctx, deployment(s.name, 1)))
	s.await(func(v observer.View) bool { return v.Ready == 1 })
	assert.Zero(t, s.watched.View().Updated, "injected out of scope")
	out, err := kubectl(s.ctx, "", "label", "namespace", s.name, "tier=web")
	require.NoError(t, err, out)
	s.poll("a new pod to be injected", func() (bool, error) {
		out, err := kubectl(s.ctx, "", "run", "probe", "-n", s.name, "--image=app:1", "--labels=app="+s.name, "--dry-run=server", "-o", "jsonpath={.spec.containers[*].name}")
		return out == "side probe", err
	})
}
