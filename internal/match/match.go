// Package match decides which pods a SidecarSet applies to (SPEC §3).
package match

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Scope contains the compiled selectors of a SidecarSet. Scope selects pods by label. Scope can
// be limited to one namespace, or to namespaces with certain labels.
type Scope struct {
	pods       labels.Selector
	namespace  string
	namespaces labels.Selector
}

// NewScope compiles the selectors of a spec. A missing or empty pod selector matches nothing. On an error,
// the scope contains only the requirements that can be parsed, and includes every pod that the SidecarSet
// could match.
func NewScope(spec *v1alpha1.SidecarSetSpec) (Scope, error) {
	scope := Scope{pods: labels.Nothing(), namespace: spec.Namespace}
	var errs []error
	if !MatchesNothing(spec.Selector) {
		var err error
		if scope.pods, err = compile(spec.Selector); err != nil {
			errs = append(errs, fmt.Errorf("spec.selector: %w", err))
		}
	}
	if spec.NamespaceSelector != nil {
		var err error
		if scope.namespaces, err = compile(spec.NamespaceSelector); err != nil {
			errs = append(errs, fmt.Errorf("spec.namespaceSelector: %w", err))
			if scope.namespaces.Empty() {
				scope.namespaces = nil
			}
		}
	}
	return scope, errors.Join(errs...)
}

// MatchesNothing reports whether a selector of pods is missing or empty.
func MatchesNothing(selector *metav1.LabelSelector) bool {
	return selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
}

// compile compiles a selector. If some requirements cannot be parsed, compile returns the selector without
// these requirements, together with an error.
func compile(selector *metav1.LabelSelector) (labels.Selector, error) {
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err == nil {
		return compiled, nil
	}
	readable := labels.NewSelector()
	add := func(single metav1.LabelSelector) {
		if one, err := metav1.LabelSelectorAsSelector(&single); err == nil {
			requirements, _ := one.Requirements()
			readable = readable.Add(requirements...)
		}
	}
	for key, value := range selector.MatchLabels {
		add(metav1.LabelSelector{MatchLabels: map[string]string{key: value}})
	}
	for _, requirement := range selector.MatchExpressions {
		add(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{requirement}})
	}
	return readable, err
}

// Labels reports whether the scope selects the labels of a pod.
func (s Scope) Labels(podLabels map[string]string) bool {
	return s.pods.Matches(labels.Set(podLabels))
}

// PodSelector returns the compiled selector of pods.
func (s Scope) PodSelector() labels.Selector { return s.pods }

// OneNamespace returns the namespace of a scope that is limited to one namespace, and otherwise an empty
// string.
func (s Scope) OneNamespace() string { return s.namespace }

// NeedsNamespaceLabels reports whether Namespace needs the labels of the namespace.
func (s Scope) NeedsNamespaceLabels() bool { return s.namespaces != nil }

// MayContain reports whether a namespace is in scope if its labels match.
func (s Scope) MayContain(name string) bool { return s.namespace == "" || s.namespace == name }

// Namespace reports whether a namespace with these labels is in scope.
func (s Scope) Namespace(name string, namespaceLabels map[string]string) bool {
	if !s.MayContain(name) {
		return false
	}
	return s.namespaces == nil || s.namespaces.Matches(labels.Set(namespaceLabels))
}

// Covers reports whether a namespace with these labels is in scope, and is not excluded from the webhook.
// The system namespace and the namespaces labelled outrigger.io/injection=disabled are excluded.
func (s Scope) Covers(name string, namespaceLabels map[string]string, systemNamespace string) bool {
	return NewWebhook(nil, systemNamespace).Namespace(name, namespaceLabels) && s.Namespace(name, namespaceLabels)
}

// Active reports whether a SidecarSet includes a pod in its counts and upgrades. Ended pods, terminating pods
// and mirrors of static pods are not active.
func Active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && !Mirror(pod) &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Critical reports whether nodes or the control plane may need a pod before the webhook can run.
// The webhook is never called for a critical pod (SPEC §4.13).
func Critical(pod *corev1.Pod) bool {
	class := pod.Spec.PriorityClassName
	return pod.Namespace == metav1.NamespaceSystem && (class == "system-node-critical" || class == "system-cluster-critical")
}

// Mirror reports whether a pod is the mirror of a static pod. The kubelet runs a static pod from a file,
// and ignores changes of the mirror.
func Mirror(pod *corev1.Pod) bool {
	_, mirrors := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirrors
}
