package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// sidecars returns the number of pods for each image of the sidecar.
func sidecars(pods []corev1.Pod) map[string]int {
	images := map[string]int{}
	for i := range pods {
		for _, container := range pods[i].Spec.Containers {
			if container.Name == "side" {
				images[container.Image]++
			}
		}
	}
	return images
}

// dryRun creates n pods in a dry run, and returns the pods.
func (s *scenario) dryRun(n int) []corev1.Pod {
	s.t.Helper()
	pods := make([]corev1.Pod, n)
	for i := range pods {
		template := deployment(s.name, 1).Spec.Template
		pods[i] = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, GenerateName: "app-", Labels: template.Labels}, Spec: template.Spec}
		require.NoError(s.t, stack.kube.Create(s.ctx, &pods[i], client.DryRunAll))
	}
	return pods
}

// promoteFully ends all steps of the rollout.
func (s *scenario) promoteFully() {
	s.t.Helper()
	handle, err := stack.temporal.UpdateWorkflow(s.ctx, sdk.UpdateWorkflowOptions{
		WorkflowID: s.workflow(), UpdateName: protocol.PromoteUpdate, WaitForStage: sdk.WorkflowUpdateStageCompleted,
		Args: []any{protocol.StepRequest{Approval: protocol.Approval{By: "ann"}, Generation: s.set.Generation, Full: true}},
	})
	require.NoError(s.t, err)
	require.NoError(s.t, handle.Get(s.ctx, new(protocol.StepResult)))
}

func TestSpec11_5_NewPodsFollowTheStep(t *testing.T) {
	t.Parallel()
	s := newStagedScenario(t, 10, intstr.FromString("100%"), outriggerv1.RolloutStep{UpTo: intstr.FromString("50%"), Approval: &outriggerv1.StepApproval{}})
	s.awaitGood()
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonAwaitingApproval)
	assert.Equal(t, 5, s.watched.View().Updated)

	s.scale(50)
	s.await(func(v observer.View) bool { return v.Pods == 50 && v.Ready == 50 })
	images := sidecars(s.pods())
	assert.Equal(t, 50, images["side:v1"]+images["side:v2"], "%v", images)
	assert.GreaterOrEqual(t, images["side:v2"]-5, 8, "of 40 new pods")
	assert.LessOrEqual(t, images["side:v2"]-5, 32, "of 40 new pods")
	s.awaitSet("the counts of the new pods", func(set *v1alpha1.SidecarSet) bool {
		st := set.Status
		return st.MatchedPods == 50 && st.ReadyPods == 50 && int(st.UpdatedPods) == images["side:v2"] && st.UpdatedReadyPods == st.UpdatedPods
	})
	assert.Contains(t, s.awaitReason(v1alpha1.ReasonAwaitingApproval), fmt.Sprintf("%d of 50 pods updated", images["side:v2"]))

	latest := s.stored().Status.LatestRevision
	s.edit(fmt.Sprintf(`[{"op":"add","path":"/spec/injectionStrategy/revision","value":{"revisionName":%q,"policy":"Always"}}]`, latest))
	s.awaitReason(v1alpha1.ReasonAwaitingApproval)
	s.poll("the pin to win over the step", func() (bool, error) { return sidecars(s.dryRun(20))["side:v2"] == 20, nil })

	s.edit(`[{"op":"remove","path":"/spec/injectionStrategy/revision"}]`)
	s.awaitReason(v1alpha1.ReasonAwaitingApproval)
	s.promoteFully()
	s.await(observer.Converged(50))
	s.awaitGood()
	s.poll("all new pods to get the new image", func() (bool, error) { return sidecars(s.dryRun(20))["side:v2"] == 20, nil })
}

// No worker runs, so no plan is made and no step is recorded.
func TestSpec11_5_BeforeTheFirstStepNewPodsGetTheLastGoodRevision(t *testing.T) {
	s := newStagedScenario(t, 4, intstr.FromInt32(4), bakes(intstr.FromInt32(1), time.Hour))
	s.awaitGood()
	workers := []string{"worker-1", "worker-2"}
	for _, worker := range workers {
		require.NoError(t, stack.Kill(worker))
	}
	s.upgradeTo("side:v2")
	// The webhook may observe the edit with a delay. Before the webhook observes the edit, new pods also get
	// the image side:v1.
	s.awaitSet("the start of the rollout", func(set *v1alpha1.SidecarSet) bool {
		return set.Status.Rollout.Generation == set.Generation && set.Status.ObservedGeneration == set.Generation
	})
	s.scale(24)
	s.await(func(v observer.View) bool { return v.Pods == 24 && v.Ready == 24 })
	assert.Equal(t, map[string]int{"side:v1": 24}, sidecars(s.pods()))
	s.awaitSet("the counts of the new pods", func(set *v1alpha1.SidecarSet) bool {
		return set.Status.MatchedPods == 24 && set.Status.ReadyPods == 24 && set.Status.UpdatedPods == 0
	})

	for _, worker := range workers {
		require.NoError(t, stack.StartAgain(s.ctx, worker))
	}
	s.awaitReason(v1alpha1.ReasonBaking)
	assert.Equal(t, 1, s.watched.View().Updated)
	s.promoteFully()
	s.await(observer.Converged(24))
}

// Pods that differ in more than images cannot be upgraded in place, so no step waits for these pods.
// Recreated pods get the current content.
func TestSpec11_5_RecreatedPodsGetContentThatCannotBeUpgradedInPlace(t *testing.T) {
	t.Parallel()
	s := newStagedScenario(t, 4, intstr.FromInt32(4), outriggerv1.RolloutStep{UpTo: intstr.FromInt32(1), Approval: &outriggerv1.StepApproval{}})
	s.awaitGood()
	s.watched.Expect("side:v2")
	s.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"},{"op":"add","path":"/spec/containers/0/args","value":["-v"]}]`)
	s.awaitReason(v1alpha1.ReasonNotUpgradablePods)
	s.poll("new pods to get the new content", func() (bool, error) { return sidecars(s.dryRun(20))["side:v2"] == 20, nil })
	// As with the strategy Recreate of a Deployment, all old pods are gone before new pods are created.
	s.scale(0)
	s.awaitReason(v1alpha1.ReasonRolloutComplete)
	s.scale(4)
	s.await(observer.Converged(4))
	s.awaitGood()
}
