package match

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Webhook decides for which pods the API server calls the pod webhook (SPEC §4.13).
type Webhook struct {
	systemNamespace  string
	namespaces, pods labels.Selector
}

// NewWebhook reads the selectors of the installed webhook. installed may be nil. A missing selector, and a
// selector that cannot be parsed, match everything. Every Webhook excludes the system namespace and the
// namespaces labelled outrigger.io/injection=disabled.
func NewWebhook(installed *admissionregistrationv1.MutatingWebhook, systemNamespace string) Webhook {
	w := Webhook{systemNamespace: systemNamespace, namespaces: labels.Everything(), pods: labels.Everything()}
	if installed != nil {
		w.namespaces, w.pods = readable(installed.NamespaceSelector), readable(installed.ObjectSelector)
	}
	return w
}

func readable(selector *metav1.LabelSelector) labels.Selector {
	if selector != nil {
		if compiled, err := metav1.LabelSelectorAsSelector(selector); err == nil {
			return compiled
		}
	}
	return labels.Everything()
}

// Namespace reports whether the webhook is called for pods of a namespace with these labels.
func (w Webhook) Namespace(name string, namespaceLabels map[string]string) bool {
	return name != w.systemNamespace && namespaceLabels[v1alpha1.InjectionLabel] != v1alpha1.InjectionDisabled &&
		w.namespaces.Matches(labels.Set(namespaceLabels))
}

// Pod reports whether the webhook is called for a pod. Pod does not check the namespace of the pod, which
// Namespace checks.
func (w Webhook) Pod(pod *corev1.Pod) bool {
	return !Critical(pod) && w.pods.Matches(labels.Set(pod.Labels))
}

// ConditionOf reads the match condition with the name ConditionName. A webhook without this condition is called
// for every pod.
func ConditionOf(installed *admissionregistrationv1.MutatingWebhook) Condition {
	for _, condition := range installed.MatchConditions {
		if condition.Name == ConditionName {
			return ParseCondition(condition.Expression)
		}
	}
	return Condition{all: true}
}

// CriticalCondition returns the shipped match condition, which excludes the pods for which Critical returns true.
func CriticalCondition() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name: "not-system-critical",
		Expression: "request.namespace != 'kube-system' || !has(object.spec.priorityClassName) || " +
			"!(object.spec.priorityClassName in ['system-node-critical', 'system-cluster-critical'])",
	}
}

// UnknownConditions returns the names of the match conditions that may exclude pods of a scope. The result
// includes ConditionName until a replica of the webhook has added the scope to this condition.
func UnknownConditions(installed *admissionregistrationv1.MutatingWebhook, scope Scope) (names []string) {
	if installed == nil {
		return nil
	}
	for _, condition := range installed.MatchConditions {
		// An expression that ParseCondition cannot parse may exclude any pod.
		parsed := ParseCondition(condition.Expression)
		followed := condition.Name == ConditionName && !parsed.Everything() && parsed.Contains(scope)
		// An administrator may have replaced the expression of the shipped condition.
		condition.Expression = strings.Join(strings.Fields(condition.Expression), " ")
		if condition != CriticalCondition() && !followed {
			names = append(names, condition.Name)
		}
	}
	return names
}
