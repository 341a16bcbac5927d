package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
	"github.com/outrigger/outrigger/kube"
)

// newBudgetedScenario creates a scenario with a RolloutPolicy, and a PodDisruptionBudget for the pods.
func newBudgetedScenario(t *testing.T, n int32) *scenario {
	t.Helper()
	s := newStagedScenario(t, n, intstr.FromInt32(2))
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: s.name}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": s.name}}
	budget.Spec.MaxUnavailable = new(intstr.FromInt32(1))
	require.NoError(t, stack.kube.Create(s.ctx, budget))
	return s
}

// evict sets the action Evict in the policy.
func (s *scenario) evict() {
	s.t.Helper()
	s.patchPolicy(`{"notUpgradable":{"action":"Evict","deadline":"14d"}}`)
}

// editEnvironment changes an environment variable of the sidecar. An upgrade in place cannot change an
// environment variable.
func (s *scenario) editEnvironment(value string) {
	s.t.Helper()
	s.edit(fmt.Sprintf(`[{"op":"add","path":"/spec/containers/0/env","value":[{"name":"LEVEL","value":%q}]}]`, value))
}

// awaitEvictions waits until condition is true for the evictions in the status of the policy, and returns the
// evictions.
func (s *scenario) awaitEvictions(what string, condition func(*outriggerv1.EvictionStatus) bool) *outriggerv1.EvictionStatus {
	s.t.Helper()
	policy := &outriggerv1.RolloutPolicy{}
	s.poll(what, func() (bool, error) {
		err := stack.kube.Get(s.ctx, client.ObjectKey{Name: s.name}, policy)
		return err == nil && policy.Status.Evictions != nil && condition(policy.Status.Evictions), err
	})
	return policy.Status.Evictions
}

// environments returns the number of pods for each value of LEVEL in the sidecar. A pod without the sidecar
// has the value none.
func (s *scenario) environments() map[string]int {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, stack.kube.List(s.ctx, &pods, client.InNamespace(s.name)))
	found := map[string]int{}
	for i := range pods.Items {
		value := "none"
		for _, c := range pods.Items[i].Spec.Containers {
			if c.Name != "side" {
				continue
			}
			value = ""
			for _, env := range c.Env {
				if env.Name == "LEVEL" {
					value = env.Value
				}
			}
		}
		if pods.Items[i].DeletionTimestamp == nil {
			found[value]++
		}
	}
	return found
}

func TestSpec13_2_PodsThatCannotBeUpgradedAreEvicted(t *testing.T) {
	t.Parallel()
	s := newBudgetedScenario(t, 6)
	alone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "alone", Labels: map[string]string{"app": s.name}}}
	alone.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
	require.NoError(t, stack.kube.Create(s.ctx, alone))
	s.await(observer.Converged(7))
	s.evict()
	s.awaitEvictions("a run without outdated pods", func(e *outriggerv1.EvictionStatus) bool { return e.Message == "no pod has to be recreated" })
	s.editEnvironment("debug")
	status := s.awaitEvictions("the evictions", func(e *outriggerv1.EvictionStatus) bool { return e.Evicted == 6 && e.Remaining == 1 })
	assert.Equal(t, "1 pod has to be recreated; 1 pod is not evicted: no controller recreates the pods", s.awaitEvictions("the end", func(e *outriggerv1.EvictionStatus) bool { return e.Since == nil }).Message)
	assert.Empty(t, status.Failed)
	assert.Equal(t, map[string]int{"debug": 6, "": 1}, s.environments())
	s.awaitSet("the replacements", func(set *v1alpha1.SidecarSet) bool { return set.Status.UpdatedReadyPods == 6 })
}

func TestSpec13_2_PodsThatWereNeverInjectedAreEvicted(t *testing.T) {
	t.Parallel()
	s := newBudgetedScenario(t, 0)
	s.edit(`[{"op":"replace","path":"/spec/selector/matchLabels/app","value":"not-yet"}]`)
	s.poll("the webhook to observe the selector", func() (bool, error) {
		pod, err := dryRunPod(s.ctx, s.name, s.name)
		return err == nil && len(pod.Spec.Containers) == 1, err
	})
	require.NoError(t, stack.kube.Create(s.ctx, deployment(s.name, 3)))
	s.await(func(v observer.View) bool { return v.Ready == 3 })
	require.Equal(t, map[string]int{"none": 3}, s.environments())
	// No pod is matched, so 34 % of the matched pods is zero slots.
	s.edit(`[{"op":"replace","path":"/spec/selector/matchLabels/app","value":"` + s.name + `"},{"op":"replace","path":"/spec/updateStrategy/maxUnavailable","value":"34%"}]`)
	s.evict()
	s.awaitEvictions("the evictions", func(e *outriggerv1.EvictionStatus) bool { return e.Evicted == 3 && e.Remaining == 0 })
	s.awaitSet("the replacements", counts(3))
}

func TestSpec13_1_PodsThatLackAContainerAreEvicted(t *testing.T) {
	t.Parallel()
	s := newBudgetedScenario(t, 2)
	// The webhook rejects an additional container in an update, but accepts the container in a new SidecarSet
	// with the same name.
	again := s.set.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Name: s.name, Labels: s.set.Labels}
	again.Spec.Containers = append(again.Spec.Containers, v1alpha1.SidecarContainer{Container: corev1.Container{Name: "second", Image: "second:v1"}})
	require.NoError(t, stack.kube.Delete(s.ctx, s.set))
	require.NoError(t, stack.kube.Create(s.ctx, again))
	s.set = again
	s.evict()
	s.awaitEvictions("the evictions", func(e *outriggerv1.EvictionStatus) bool { return e.Evicted == 2 && e.Remaining == 0 })
	s.awaitSet("the replacements", counts(2))
}

// The test stops the webhook, and therefore does not run in parallel with other tests.
func TestSpec13_3_ABrokenWebhookCostsOnePod(t *testing.T) {
	s := newBudgetedScenario(t, 4)
	s.editEnvironment("debug")
	repair := s.breakWebhook()
	s.evict()
	status := s.awaitEvictions("the halt", func(e *outriggerv1.EvictionStatus) bool { return len(e.Failed) > 0 })
	assert.Equal(t, int32(1), status.Evicted)
	assert.Regexp(t, `the eviction of a pod of Deployment .*/app for SidecarSet .* has failed: its new pod app-\S+ lacks the newest content, too`, status.Message)
	assert.Equal(t, map[string]int{"": 3, "none": 1}, s.environments())

	repair()
	s.signalEvictions(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	s.awaitEvictions("the evictions", func(e *outriggerv1.EvictionStatus) bool { return e.Evicted == 5 && e.Remaining == 0 })
	s.awaitSet("the replacements", counts(4))
}

func TestSpec13_5_APauseOutlivesARestoredTemporal(t *testing.T) {
	t.Parallel()
	s := newBudgetedScenario(t, 2)
	s.evict()
	s.awaitEvictions("a run without outdated pods", func(e *outriggerv1.EvictionStatus) bool { return e.Message == "no pod has to be recreated" })
	s.signalEvictions(protocol.PauseSignal, protocol.Pause{By: "ann", Reason: "lunch"})
	before := s.awaitEvictions("the pause", func(e *outriggerv1.EvictionStatus) bool { return e.Paused }).PausedAt
	require.NotNil(t, before)

	s.reset(protocol.EvictionWorkflowID(s.name, s.policyUID()), enums.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL)
	status := s.awaitEvictions("the second pause", func(e *outriggerv1.EvictionStatus) bool {
		assert.True(t, e.Paused)
		return before.Before(e.PausedAt)
	})
	assert.Equal(t, "ann: lunch", status.PausedBy+": "+status.PauseReason)
	s.signalEvictions(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	s.awaitEvictions("the resume", func(e *outriggerv1.EvictionStatus) bool { return !e.Paused })
	s.editEnvironment("debug")
	s.awaitEvictions("the evictions", func(e *outriggerv1.EvictionStatus) bool { return e.Evicted == 2 && e.Remaining == 0 })
}

// breakWebhook stops the webhook, and sets the failurePolicy to Ignore, so that new pods are not injected.
// repair restores the webhook. The webhook is also restored at the end of the test.
func (s *scenario) breakWebhook() (repair func()) {
	s.t.Helper()
	setPolicy := func(ctx context.Context, policy admissionregistrationv1.FailurePolicyType) {
		require.NoError(s.t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
			configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
			if err := stack.kube.Get(ctx, client.ObjectKey{Name: kube.WebhookConfigurationName}, configuration); err != nil {
				return err
			}
			for i := range configuration.Webhooks {
				if configuration.Webhooks[i].Name == kube.PodWebhookName {
					configuration.Webhooks[i].FailurePolicy = &policy
				}
			}
			return stack.kube.Update(ctx, configuration)
		}))
	}
	require.NoError(s.t, stack.Stop("webhook"))
	setPolicy(s.ctx, admissionregistrationv1.Ignore)
	repair = sync.OnceFunc(func() {
		ctx := context.WithoutCancel(s.ctx)
		require.NoError(s.t, stack.StartAgain(ctx, "webhook"))
		setPolicy(ctx, admissionregistrationv1.Fail)
	})
	s.t.Cleanup(repair)
	return repair
}

// signalEvictions sends a signal to the eviction run of the policy.
func (s *scenario) signalEvictions(signal string, pause protocol.Pause) {
	s.t.Helper()
	require.NoError(s.t, stack.temporal.SignalWorkflow(s.ctx, protocol.EvictionWorkflowID(s.name, s.policyUID()), "", signal, pause))
}

func (s *scenario) policyUID() (uid types.UID) {
	s.t.Helper()
	policy := &outriggerv1.RolloutPolicy{}
	require.NoError(s.t, stack.kube.Get(s.ctx, client.ObjectKey{Name: s.name}, policy))
	return policy.UID
}
