package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

func (s *scenario) pods() []corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, stack.kube.List(s.ctx, &pods, client.InNamespace(s.name)))
	return pods.Items
}

func (s *scenario) pod(name string) *corev1.Pod {
	s.t.Helper()
	pod := &corev1.Pod{}
	require.NoError(s.t, stack.kube.Get(s.ctx, client.ObjectKey{Namespace: s.name, Name: name}, pod))
	return pod
}

func (s *scenario) patchPod(pod *corev1.Pod, patch string) {
	s.t.Helper()
	require.NoError(s.t, stack.kube.Patch(s.ctx, pod, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// rejecting makes the API server reject every change of the image of the first container of a pod.
func (s *scenario) rejecting(pod, container string) {
	s.t.Helper()
	const says = "this pod stays as it is"
	s.rejectingBecause(pod, container, "'"+says+"'", says)
}

// rejectingBecause makes the API server reject writes to a pod with a message. message is a CEL expression
// whose value contains says.
func (s *scenario) rejectingBecause(pod, container, message, says string) {
	s.t.Helper()
	s.rejectingWhere(fmt.Sprintf("object.metadata.namespace == '%s' && object.metadata.name == '%s'", s.name, pod), pod, container, message, says)
}

// rejectingWhere creates a ValidatingAdmissionPolicy for all pods that match the CEL expression condition.
// pod is one of these pods.
func (s *scenario) rejectingWhere(condition, pod, container, message, says string) {
	s.t.Helper()
	policy := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods]}]
  validations:
  - expression: "!(%[2]s) || object.spec.containers[0].image == oldObject.spec.containers[0].image"
    messageExpression: "%[3]s"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, s.name, condition, message)
	out, err := kubectl(s.ctx, policy, "apply", "-f", "-")
	require.NoError(s.t, err, out)
	s.t.Cleanup(func() { s.allowing() })
	s.poll("the policy to be in force", func() (bool, error) {
		out, err := kubectl(s.ctx, "", "set", "image", "pod/"+pod, "-n", s.name, container+"=probe", "--dry-run=server")
		return err != nil && assert.Contains(s.t, out, says), nil
	})
}

func (s *scenario) allowing() {
	ctx := s.t.Context()
	for _, kind := range []string{"validatingadmissionpolicybinding", "validatingadmissionpolicy"} {
		out, err := kubectl(ctx, "", "delete", kind, s.name, "--ignore-not-found")
		if ctx.Err() == nil {
			require.NoError(s.t, err, out)
		}
	}
}

func TestSpec7_8_ARejectedPodStopsNoOtherAndIsUpgradedOnceAdmitted(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 8, nil)
	stuck := s.pods()[0].Name
	s.rejecting(stuck, "side")
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 7 && v.InFlight == 0 })
	s.awaitStatus("the run to know that one pod is left", func(status protocol.RolloutStatus) bool {
		return status.Counts.Remaining == 1 && status.Counts.UpdatedReady == 7
	})
	s.allowing()
	s.await(observer.Converged(8))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
}

func TestSpec7_8_AnyNumberOfRejectedPodsStopsNoOther(t *testing.T) {
	t.Parallel()
	const rejected, others = 260, 20
	s := newScenario(t, rejected+others, maxUnavailable(1))
	pods := s.pods()
	for i := range rejected {
		s.patchPod(&pods[i], `{"metadata":{"labels":{"frozen":"true"}}}`)
	}
	s.rejectingWhere("'frozen' in object.metadata.labels", pods[0].Name, "side", "'frozen pods stay'", "frozen pods stay")
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == others && v.InFlight == 0 })
	s.within(1)
	status := s.awaitStatus("the run to wait", func(status protocol.RolloutStatus) bool {
		return status.Counts.Remaining == rejected && status.Phase == protocol.PhaseWaiting
	})
	assert.GreaterOrEqual(t, status.RejectedWrites, rejected)
	assert.Less(t, status.RejectedWrites, rejected+5*200, "each round tries 200 again, and rounds become rare")
}

func TestSpec7_8_ARejectedPodDoesNotWaitForAPodThatCannotBeUpgraded(t *testing.T) {
	t.Parallel()
	s := newByHandScenario(t, 2)
	s.rejecting("pod-0", "side")
	s.upgradeTo("side:v2")
	// No kubelet reports the new image of pod-1, so the upgrade of pod-1 stays in progress.
	s.await(func(v observer.View) bool { return v.Updated == 1 })
	s.upgradeTo("side:v3")
	s.awaitStatus("the rejection of pod-0", func(status protocol.RolloutStatus) bool {
		return status.Generation == s.set.Generation && status.RejectedWrites > 0
	})
	s.allowing()
	s.await(func(v observer.View) bool { return v.Updated == 1 })
	assert.Equal(t, []string{"pod-0"}, s.images("side:v3"))
}

func TestSpec7_8_RelabelledPodLeavesAndComesBack(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 8, nil)
	pod := s.pods()[0]
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	// The Deployment replaces the relabeled pod. Both pods are upgraded to the new version.
	s.patchPod(&pod, `{"metadata":{"labels":{"app":"elsewhere"}}}`)
	s.await(observer.Converged(8))
	s.patchPod(&pod, fmt.Sprintf(`{"metadata":{"labels":{"app":%q}}}`, s.name))
	s.await(func(v observer.View) bool { return v.Pods == v.Updated && v.InFlight == 0 && v.Pods >= 8 })
	s.within(2)
}

func TestSpec7_8_EvictedAndFailedPodsStopNoOther(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 8, nil)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	pods := s.pods()
	require.NoError(t, stack.kube.SubResource("eviction").Create(s.ctx, &pods[0],
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pods[0].Name, Namespace: s.name}}))
	failed := &pods[1]
	require.NoError(t, client.IgnoreNotFound(stack.kube.Status().Patch(s.ctx, failed,
		client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Failed","reason":"Evicted"}}`)))))
	s.awaitPhase(protocol.PhaseComplete)
	s.awaitSet("counts without the failed pod", counts(8))
}

func TestSpec7_8_PodsOnADeadNodeStopNoOther(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 8, nil)
	// Two pods have the phase Unknown, which Kubernetes no longer sets for lost nodes. The test
	// TestSpec7_2_PodsOfALostNodeAreUpgradedOnceTheNodeResponds has the conditions that Kubernetes sets.
	pods := s.pods()
	for i := range 2 {
		s.patchPodStatus(&pods[i], `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"NodeStatusUnknown","lastTransitionTime":"2020-01-01T00:00:00Z"}],"phase":"Unknown"}}`)
	}
	s.watched.Expect("side:v2")
	s.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"},{"op":"replace","path":"/spec/updateStrategy/maxUnavailable","value":1}]`)
	s.await(func(v observer.View) bool { return v.Updated == 8 })
	s.poll("the six others to be ready", func() (bool, error) {
		return s.watched.View().Ready >= 6, nil
	})
}

func (s *scenario) patchPodStatus(pod *corev1.Pod, patch string) {
	s.t.Helper()
	require.NoError(s.t, stack.kube.Status().Patch(s.ctx, pod, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

func TestSpec7_8_NamespaceThatLosesItsLabelLeavesTheRollout(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 0, func(set *v1alpha1.SidecarSet) {
		set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
		set.Spec.UpdateStrategy.Paused = true
	})
	out, err := kubectl(s.ctx, "", "label", "namespace", s.name, "tier=web")
	require.NoError(t, err, out)
	s.poll("the namespace to be in scope", func() (bool, error) {
		out, err := kubectl(s.ctx, "", "run", "probe", "-n", s.name, "--image=app:1", "--labels=app="+s.name, "--dry-run=server", "-o", "jsonpath={.spec.containers[*].name}")
		return out == "side probe", err
	})
	require.NoError(t, stack.kube.Create(s.ctx, deployment(s.name, 4)))
	s.await(observer.Converged(4))
	s.upgradeTo("side:v2")
	s.awaitPhase(protocol.PhasePaused)
	out, err = kubectl(s.ctx, "", "label", "namespace", s.name, "tier-")
	require.NoError(t, err, out)
	s.awaitSet("nothing to match", func(set *v1alpha1.SidecarSet) bool {
		return set.Status.ObservedGeneration == set.Generation && set.Status.MatchedPods == 0
	})
	s.edit(`[{"op":"remove","path":"/spec/updateStrategy/paused"}]`)
	s.awaitPhase(protocol.PhaseComplete)
	assert.Zero(t, s.watched.View().Updated)
}

func TestSpec7_8_SetDeletedAndMadeAgainUnderTheSameName(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 8, nil)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	again := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: *s.set.Spec.DeepCopy()}
	again.Spec.Containers[0].Image = "side:v3"
	require.NoError(t, stack.kube.Delete(s.ctx, s.set))
	require.NoError(t, stack.kube.Create(s.ctx, again))
	s.watched.Expect("side:v3")
	s.set = again
	s.await(observer.Converged(8))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
	s.awaitSet("counts", counts(8))
}

func TestSpec7_ImagesByDigest(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 4, nil)
	s.upgradeTo("side@sha256:c3ab8ff13720e8ad9047dd39466b3c8974e592c2fa383d4a3960714caef0c4f2")
	s.await(observer.Converged(4))
	s.within(2)
	s.awaitSet("counts", counts(4))
	s.awaitPhase(protocol.PhaseComplete)
}

func TestFlappingReadinessStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 8, nil)
	flapping := s.pods()[0]
	flap := func(status string) {
		s.patchPodStatus(&flapping, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`, status, metav1.Now().Format("2006-01-02T15:04:05Z")))
	}
	s.upgradeTo("side:v2")
	for _, n := range []int{2, 4, 6} {
		s.await(func(v observer.View) bool { return v.Updated >= n })
		flap("False") // The simulated kubelet sets the condition back after half a second.
	}
	s.await(observer.Converged(8))
	s.awaitPhase(protocol.PhaseComplete)
}
