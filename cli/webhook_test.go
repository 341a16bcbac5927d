package cli

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/kube"
)

// installed returns the webhook configuration. change changes the webhook of pods.
func installed(change func(*admissionv1.MutatingWebhook)) *admissionv1.MutatingWebhookConfiguration {
	pods := admissionv1.MutatingWebhook{Name: kube.PodWebhookName, Rules: make([]admissionv1.RuleWithOperations, 1)}
	change(&pods)
	return &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: kube.WebhookConfigurationName},
		Webhooks:   []admissionv1.MutatingWebhook{{Name: "sidecarsets.outrigger.io"}, pods},
	}
}

func unmanaged(n *corev1.Namespace) { n.Labels["managed"] = "no" }

func managedOnly(w *admissionv1.MutatingWebhook) {
	w.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "managed", Operator: "NotIn", Values: []string{"no"}}}}
}

func missingPods(t *testing.T, got ran) map[string]string {
	t.Helper()
	require.NoError(t, got.err, got.out)
	found := map[string]string{}
	for _, one := range read[[]view.BehindPod](t, got.out) {
		found[one.Namespace+"/"+one.Name] = one.Reason
	}
	return found
}

func TestPodsThatBypassTheInstalledWebhookAreNotMissing(t *testing.T) {
	optedOut := func(p *corev1.Pod) { p.Labels["sidecars"] = "no" }
	objects := []client.Object{
		sidecarSet(t, "logs"), namespace("shop"), namespace("lab", unmanaged), namespace(metav1.NamespaceSystem),
		plainPod("shop", "plain"), plainPod("lab", "plain"), plainPod("shop", "opted-out", optedOut),
		plainPod(metav1.NamespaceSystem, "agent", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }),
	}
	missing := func(change func(*admissionv1.MutatingWebhook)) map[string]string {
		return missingPods(t, newTestCluster(t, append(objects, installed(change))...).run("list", "--missing", "-o", "json"))
	}
	calledOff := func(namespace, name string) string {
		return "it was created without the sidecars, and matches now: since then, the SidecarSet's selector or the labels of its namespace (such as outrigger.io/injection=disabled) have changed, injection was resumed, or the webhook was installed" +
			fmt.Sprintf(" (no controller recreates it: kubectl get pod %s -n %s -o yaml | kubectl replace --force -f -)", name, namespace)
	}
	assert.Equal(t, map[string]string{"shop/plain": calledOff("shop", "plain"), "lab/plain": calledOff("lab", "plain"), "shop/opted-out": calledOff("shop", "opted-out")}, missing(func(*admissionv1.MutatingWebhook) {}))
	assert.Equal(t, map[string]string{"shop/plain": calledOff("shop", "plain")}, missing(func(w *admissionv1.MutatingWebhook) {
		managedOnly(w)
		w.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "sidecars", Operator: "NotIn", Values: []string{"no"}}}}
		w.MatchConditions = []admissionv1.MatchCondition{match.CriticalCondition()}
	}))
	assert.Contains(t, missing(func(w *admissionv1.MutatingWebhook) {
		w.MatchConditions = []admissionv1.MatchCondition{{Name: "ours", Expression: "true"}}
	})["shop/plain"], "or a match condition of the webhook leaves it out (ours)", "the expression is not evaluated")
	assert.Contains(t, missing(func(w *admissionv1.MutatingWebhook) { w.Rules = nil })["shop/plain"], "the webhook of pods is not activated")
	assert.Contains(t, missingPods(t, newTestCluster(t, objects...).run("list", "--missing", "-o", "json"))["shop/plain"], "the webhook of pods is not installed")
}

func TestWhyAndPlanCountTheMissingPodsOfList(t *testing.T) {
	set := sidecarSet(t, "logs")
	s := newTestCluster(t, set, namespace("shop"), namespace("lab", unmanaged), plainPod("shop", "plain"), plainPod("lab", "plain"), installed(managedOnly))
	assert.Contains(t, s.shows("why", "sidecarset/logs"), "not injected though they match: 1 pod ")
	wanted := &v1alpha1.SidecarSet{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SidecarSet"}, Spec: set.Spec}
	wanted.Name, wanted.Spec.Containers[0].Name = "new", "other"
	file, err := yaml.Marshal(wanted)
	require.NoError(t, err)
	got := s.runWith(string(file), "plan", "-f", "-")
	require.NoError(t, got.err)
	assert.Contains(t, got.out, "1 pod match now")
}

func TestANoteNamesTheConsequenceOfAMissingRight(t *testing.T) {
	forbidden := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
		if _, ok := into.(*admissionv1.MutatingWebhookConfiguration); ok {
			return apierrors.NewForbidden(schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}, key.Name, nil)
		}
		return c.Get(ctx, key, into, options...)
	}}
	s := newInterceptedCluster(t, forbidden, sidecarSet(t, "logs"), namespace("lab", unmanaged), plainPod("lab", "plain"), installed(managedOnly))
	for _, args := range [][]string{{"list", "--missing"}, {"list", "--missing", "-o", "json"}, {"why", "lab/plain"}, {"why", "sidecarset/logs"}} {
		got := s.run(args...)
		require.NoError(t, got.err, "%v", args)
		assert.Regexp(t, `^Note: get the webhook of pods: not allowed: .*; pods that it is not called for may be listed as missing\n$`, got.errOut, "%v", args)
	}
	assert.Contains(t, missingPods(t, s.run("list", "--missing", "-o", "json")), "lab/plain")
	assert.Empty(t, s.run("list").errOut)
}
