package match

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSpec4_13_TheWebhookIsNotCalledForExcludedPods(t *testing.T) {
	installed := &admissionregistrationv1.MutatingWebhook{
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kruise-system", "kube-flannel"}},
		}},
		ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "sidecars", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"no"}},
		}},
	}
	labelled := func(namespace, injection string) map[string]string {
		return map[string]string{corev1.LabelMetadataName: namespace, v1alpha1.InjectionLabel: injection}
	}
	for _, c := range []struct {
		installed *admissionregistrationv1.MutatingWebhook
		namespace string
		injection string
		want      bool
	}{
		{installed, "web", "", true},
		{installed, "web", "enabled", true},
		{installed, "web", v1alpha1.InjectionDisabled, false},
		{installed, "kube-flannel", "", false},
		{installed, "kruise-system", "", false},
		{nil, "web", "", true},
		{nil, "kube-flannel", "", true},
		{nil, "web", v1alpha1.InjectionDisabled, false},
		{nil, "kruise-system", "", false},
	} {
		got := NewWebhook(c.installed, "kruise-system").Namespace(c.namespace, labelled(c.namespace, c.injection))
		assert.Equal(t, c.want, got, "%s, %q", c.namespace, c.injection)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web"}}
	assert.True(t, NewWebhook(installed, "kruise-system").Pod(pod))
	pod.Labels = map[string]string{"sidecars": "no"}
	assert.False(t, NewWebhook(installed, "kruise-system").Pod(pod))
	assert.True(t, NewWebhook(nil, "kruise-system").Pod(pod))
	pod.Namespace, pod.Spec.PriorityClassName = "kube-system", "system-cluster-critical"
	assert.False(t, NewWebhook(nil, "kruise-system").Pod(pod))
}

func TestSelectorsOfTheWebhookThatCannotBeReadLeaveNothingOut(t *testing.T) {
	unreadable := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Is"}}}
	w := NewWebhook(&admissionregistrationv1.MutatingWebhook{NamespaceSelector: unreadable, ObjectSelector: unreadable}, "kruise-system")
	assert.True(t, w.Namespace("web", nil))
	assert.True(t, w.Pod(&corev1.Pod{}))
}

// An administrator may keep the name of the shipped condition and replace its expression.
func TestSpec13_1_AReplacedConditionMayExcludePods(t *testing.T) {
	scope, err := NewScope(&v1alpha1.SidecarSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}})
	require.NoError(t, err)
	shipped := CriticalCondition()
	for expression, want := range map[string][]string{
		strings.ReplaceAll(shipped.Expression, " || ", " ||\n  "): nil,
		"!has(object.spec.priorityClassName)":                     {shipped.Name},
	} {
		shipped.Expression = expression
		installed := &admissionregistrationv1.MutatingWebhook{MatchConditions: []admissionregistrationv1.MatchCondition{shipped}}
		assert.Equal(t, want, UnknownConditions(installed, scope), expression)
	}
}
