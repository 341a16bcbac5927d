package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
)

// evictions records each eviction request, and returns answer as the response.
type evictions struct {
	client.SubResourceWriter
	answer error
	sent   []policyv1.Eviction
}

func (e *evictions) Create(ctx context.Context, _, eviction client.Object, _ ...client.SubResourceCreateOption) error {
	return throughTheGate(ctx, func() error {
		e.sent = append(e.sent, *eviction.(*policyv1.Eviction))
		return e.answer
	})
}

// evictingCluster returns Activities for a cluster with the SidecarSet logs, whose rollout has ended, and
// with a policy that evicts pods. evictingCluster also returns the recorded evictions and an input that
// evicts livePod.
func evictingCluster(t *testing.T, pods ...client.Object) (*Activities, *evictions, protocol.EvictPodsInput) {
	t.Helper()
	set := webSet(1)
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 2}
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "p1", Generation: 3}}
	policy.Spec.NotUpgradable = &outriggerv1.RolloutNotUpgradable{Action: outriggerv1.EvictNotUpgradable}
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: kube.WebhookConfigurationName}}
	webhook.Webhooks = []admissionregistrationv1.MutatingWebhook{{Name: kube.PodWebhookName, Rules: make([]admissionregistrationv1.RuleWithOperations, 1)}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	a, _ := newActivities(t, interceptor.Funcs{}, append(pods, set, policy, webhook, namespace)...)
	sent := &evictions{}
	a.Evict = sent
	chosen := protocol.WrittenPod{PodReference: protocol.PodReference{Namespace: "shop", Name: "web-1", UID: "w1"}, ResourceVersion: "7"}
	return a, sent, protocol.EvictPodsInput{
		Policy: protocol.PolicyReference{Name: "edge", UID: "p1"}, Generation: 3,
		Evictions: []protocol.Eviction{{SidecarSet: protocol.SetReference{Name: "logs", UID: set.UID}, Generation: 2, Owner: protocol.Owner{Namespace: "shop", Kind: "Deployment", Name: "web"}, Since: time.Now(), Pods: []protocol.WrittenPod{chosen}}},
	}
}

func evictPods(t *testing.T, a *Activities, input protocol.EvictPodsInput) (result protocol.EvictPodsResult, err error) {
	t.Helper()
	err = inActivity(t, nil, func(ctx context.Context) (err error) {
		result, err = a.evictPods(ctx, input, a.Clock.Now())
		return err
	})
	return result, err
}

// livePod returns the chosen pod of evictingCluster.
func livePod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "w1", ResourceVersion: "7"}}
}

// readsOfPod returns the next entry of pods for each read of a pod, and reads other objects from the server. For
// a nil entry, readsOfPod returns a NotFound error.
type readsOfPod struct {
	client.Reader
	pods []*corev1.Pod
}

func (r *readsOfPod) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	into, ok := object.(*corev1.Pod)
	if !ok {
		return r.Reader.Get(ctx, key, object, options...)
	}
	next := r.pods[0]
	r.pods = r.pods[1:]
	if next == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	next.DeepCopyInto(into)
	return nil
}

func TestSpec13_2_AnEvictionNamesTheChosenPod(t *testing.T) {
	a, sent, input := evictingCluster(t, livePod())
	result, err := evictPods(t, a, input)
	require.NoError(t, err)
	assert.Equal(t, []types.UID{"w1"}, result.Evicted)
	require.Len(t, sent.sent, 1)
	assert.Equal(t, &metav1.Preconditions{UID: new(types.UID("w1")), ResourceVersion: new("7")}, sent.sent[0].DeleteOptions.Preconditions)
}

// The API server counts a disruption of the PodDisruptionBudget even if a precondition of the eviction fails.
func TestSpec13_2_AnEvictionOfAChangedPodIsNotSent(t *testing.T) {
	changed, terminating, recreated := livePod(), livePod(), livePod()
	changed.ResourceVersion = "8"
	terminating.DeletionTimestamp = new(metav1.Now())
	recreated.UID = "w2"
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		evicted []types.UID
	}{
		"changed":     {changed, nil},
		"terminating": {terminating, []types.UID{"w1"}},
		"recreated":   {recreated, []types.UID{"w1"}},
		"gone":        {nil, []types.UID{"w1"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, sent, input := evictingCluster(t)
			a.Live = &readsOfPod{a.Live, []*corev1.Pod{c.pod}}
			result, err := evictPods(t, a, input)
			require.NoError(t, err)
			assert.Empty(t, sent.sent)
			assert.Equal(t, protocol.EvictPodsResult{Evicted: c.evicted}, result)
		})
	}
}

func TestSpec13_5_AnEvictionIsNotSentAfterAChange(t *testing.T) {
	for name, change := range map[string]func(*outriggerv1.RolloutPolicy, *v1alpha1.SidecarSet, *protocol.EvictPodsInput){
		"the policy evicts no pods": func(p *outriggerv1.RolloutPolicy, _ *v1alpha1.SidecarSet, _ *protocol.EvictPodsInput) {
			p.Spec.NotUpgradable.Action = outriggerv1.LeaveNotUpgradable
		},
		"the policy has changed": func(_ *outriggerv1.RolloutPolicy, _ *v1alpha1.SidecarSet, input *protocol.EvictPodsInput) {
			input.Generation = 2
		},
		"the policy was recreated": func(_ *outriggerv1.RolloutPolicy, _ *v1alpha1.SidecarSet, input *protocol.EvictPodsInput) {
			input.Policy.UID = "p0"
		},
		"the SidecarSet has changed": func(_ *outriggerv1.RolloutPolicy, _ *v1alpha1.SidecarSet, input *protocol.EvictPodsInput) {
			input.Evictions[0].Generation = 1
		},
		"the SidecarSet is paused": func(_ *outriggerv1.RolloutPolicy, s *v1alpha1.SidecarSet, _ *protocol.EvictPodsInput) {
			s.Spec.UpdateStrategy.Paused = true
		},
		"the SidecarSet is recreated": func(_ *outriggerv1.RolloutPolicy, _ *v1alpha1.SidecarSet, input *protocol.EvictPodsInput) {
			input.Evictions[0].SidecarSet.UID = "other"
		},
		"a partition keeps pods": func(_ *outriggerv1.RolloutPolicy, s *v1alpha1.SidecarSet, _ *protocol.EvictPodsInput) {
			s.Spec.UpdateStrategy.Partition = new(intstr.FromString("10%"))
		},
		"another policy applies": func(p *outriggerv1.RolloutPolicy, _ *v1alpha1.SidecarSet, _ *protocol.EvictPodsInput) {
			p.Spec.Selector.MatchLabels = map[string]string{"tier": "other"}
		},
		"no window is open": func(p *outriggerv1.RolloutPolicy, _ *v1alpha1.SidecarSet, _ *protocol.EvictPodsInput) {
			p.Spec.Windows = []outriggerv1.RolloutWindow{{Schedule: "0 1 1 1 *", Duration: metav1.Duration{Duration: time.Minute}}}
		},
		"the rollout is paused by signal": func(_ *outriggerv1.RolloutPolicy, s *v1alpha1.SidecarSet, _ *protocol.EvictPodsInput) {
			s.Status.Rollout.Pause = &v1alpha1.RolloutPause{By: "ann"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, sent, input := evictingCluster(t, livePod())
			server := a.Live.(client.Client)
			policy, set := &outriggerv1.RolloutPolicy{}, &v1alpha1.SidecarSet{}
			require.NoError(t, server.Get(t.Context(), client.ObjectKey{Name: "edge"}, policy))
			require.NoError(t, server.Get(t.Context(), client.ObjectKey{Name: "logs"}, set))
			change(policy, set, &input)
			require.NoError(t, server.Update(t.Context(), policy))
			require.NoError(t, server.Update(t.Context(), set))
			result, err := evictPods(t, a, input)
			require.NoError(t, err)
			assert.Empty(t, sent.sent)
			assert.Empty(t, result.Evicted)
			require.Len(t, result.Rejected, 1)
			assert.Contains(t, result.Rejected[0].Reason, "no longer permits the eviction: ")
		})
	}
}

// The webhook may disappear between the choice and the eviction.
func TestSpec13_1_AnEvictionNeedsTheWebhook(t *testing.T) {
	for name, change := range map[string]func(*admissionregistrationv1.MutatingWebhookConfiguration, *corev1.Namespace){
		"no webhook": func(c *admissionregistrationv1.MutatingWebhookConfiguration, _ *corev1.Namespace) { c.Webhooks = nil },
		"no rules": func(c *admissionregistrationv1.MutatingWebhookConfiguration, _ *corev1.Namespace) {
			c.Webhooks[0].Rules = nil
		},
		"a match condition": func(c *admissionregistrationv1.MutatingWebhookConfiguration, _ *corev1.Namespace) {
			c.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "ours", Expression: "true"}}
		},
		"the pod is excluded": func(c *admissionregistrationv1.MutatingWebhookConfiguration, _ *corev1.Namespace) {
			c.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "yes"}}
		},
		"a namespace without injection": func(_ *admissionregistrationv1.MutatingWebhookConfiguration, n *corev1.Namespace) {
			n.Labels = map[string]string{v1alpha1.InjectionLabel: v1alpha1.InjectionDisabled}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, sent, input := evictingCluster(t, livePod())
			server := a.Live.(client.Client)
			configuration, namespace := &admissionregistrationv1.MutatingWebhookConfiguration{}, &corev1.Namespace{}
			require.NoError(t, server.Get(t.Context(), client.ObjectKey{Name: kube.WebhookConfigurationName}, configuration))
			require.NoError(t, server.Get(t.Context(), client.ObjectKey{Name: "shop"}, namespace))
			change(configuration, namespace)
			require.NoError(t, server.Update(t.Context(), configuration))
			require.NoError(t, server.Update(t.Context(), namespace))
			result, err := evictPods(t, a, input)
			require.NoError(t, err)
			assert.Empty(t, sent.sent)
			require.Len(t, result.Rejected, 1)
		})
	}
}

// If all workers are busy or down, Temporal starts an activity long after the choice of the pods. An earlier
// attempt may have evicted the pods.
func TestSpec13_2_AnOldChoiceIsLeftToTheNextPlan(t *testing.T) {
	a, sent, input := evictingCluster(t, livePod())
	input.Evictions[0].Since = time.Now().Add(-2 * evictionsLimit)
	result, err := evictPods(t, a, input)
	require.NoError(t, err)
	assert.Empty(t, sent.sent)
	assert.Equal(t, protocol.EvictPodsResult{}, result)

	terminating := livePod()
	terminating.DeletionTimestamp, terminating.Finalizers = new(metav1.Now()), []string{"test/keep"}
	for _, pod := range []*corev1.Pod{livePod(), terminating} {
		a, sent, input := evictingCluster(t, pod)
		err := a.evictionPermitted(t.Context(), input, input.Evictions[0], a.Clock.Now().Add(-time.Second))()
		require.ErrorIs(t, err, errChoiceTooOld)
		evicted, rejection, err := a.evict(t.Context(), input.Evictions[0].Pods[0], func() error { return errChoiceTooOld })
		require.NoError(t, err)
		assert.Equal(t, pod.DeletionTimestamp != nil, evicted)
		assert.Empty(t, rejection)
		assert.Empty(t, sent.sent)
	}
}

func TestSpec13_2_AnswersToAnEviction(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	budget := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}
	alive := livePod()
	terminating := alive.DeepCopy()
	terminating.DeletionTimestamp, terminating.Finalizers = new(metav1.Now()), []string{"test/keep"}
	recreated, changed := alive.DeepCopy(), alive.DeepCopy()
	recreated.UID, changed.ResourceVersion = "w2", "8"
	for name, c := range map[string]struct {
		answer   error
		pod      *corev1.Pod
		evicted  bool
		rejected string
	}{
		"a PodDisruptionBudget":     {answer: budget, pod: alive, rejected: "The disruption budget web needs 2 healthy pods and has 2 currently"},
		"no permission":             {answer: apierrors.NewForbidden(pods, "web-1", errors.New("no")), pod: alive, rejected: "Forbidden"},
		"the pod is gone":           {answer: apierrors.NewNotFound(pods, "web-1"), evicted: true},
		"the pod is terminating":    {answer: apierrors.NewConflict(pods, "web-1", errors.New("resourceVersion")), pod: terminating, evicted: true},
		"the pod was recreated":     {answer: apierrors.NewConflict(pods, "web-1", errors.New("uid")), pod: recreated, evicted: true},
		"the pod has changed":       {answer: apierrors.NewConflict(pods, "web-1", errors.New("resourceVersion")), pod: changed},
		"an internal error":         {answer: apierrors.NewInternalError(errors.New("etcd")), pod: alive, rejected: "InternalError"},
		"two PodDisruptionBudgets":  {answer: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}, pod: alive, rejected: "more than one PodDisruptionBudget selects the pod"},
		"evicted by an earlier try": {answer: budget, pod: terminating, evicted: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, sent, input := evictingCluster(t)
			a.Live = &readsOfPod{a.Live, []*corev1.Pod{livePod(), c.pod}}
			sent.answer = c.answer
			result, err := evictPods(t, a, input)
			require.NoError(t, err)
			assert.Len(t, sent.sent, 1)
			assert.Equal(t, c.evicted, len(result.Evicted) == 1)
			if c.rejected == "" {
				assert.Empty(t, result.Rejected)
				return
			}
			require.Len(t, result.Rejected, 1)
			assert.Contains(t, result.Rejected[0].Reason, c.rejected)
		})
	}
}
