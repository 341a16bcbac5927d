package match

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Scope is the compiled selection of one set: pods by label, in one namespace
// or in namespaces by label.
type Scope struct {
	pods       labels.Selector
	namespace  string
	namespaces labels.Selector
}

// NewScope compiles the selectors of a spec. A missing or empty pod selector
// matches nothing. Beside an error stands the scope of what can be read: whatever
// the set could match is in it.
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

// compile leaves out the requirements that cannot be read, and returns the error of the first.
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

// Labels reports whether the pod's labels are selected.
func (s Scope) Labels(podLabels map[string]string) bool {
	return s.pods.Matches(labels.Set(podLabels))
}

// PodSelector is the compiled selector of pods.
func (s Scope) PodSelector() labels.Selector { return s.pods }

// OneNamespace is the only namespace of the scope, or empty.
func (s Scope) OneNamespace() string { return s.namespace }

// NeedsNamespaceLabels reports whether Namespace has to be asked with the
// namespace's labels.
func (s Scope) NeedsNamespaceLabels() bool { return s.namespaces != nil }

// Namespace reports whether a namespace, with these labels, is in scope.
func (s Scope) Namespace(name string, namespaceLabels map[string]string) bool {
	if s.namespace != "" && s.namespace != name {
		return false
	}
	return s.namespaces == nil || s.namespaces.Matches(labels.Set(namespaceLabels))
}

// Covers reports whether the webhook is called for the pods of a namespace with these
// labels, never for those of the system namespace, and the scope takes them.
func (s Scope) Covers(name string, namespaceLabels map[string]string, systemNamespace string) bool {
	return name != systemNamespace && namespaceLabels[v1alpha1.InjectionLabel] != v1alpha1.InjectionDisabled &&
		s.Namespace(name, namespaceLabels)
}

// Active reports whether a pod counts: one that has ended or is being deleted, or
// that mirrors a static pod, is never counted or upgraded.
func Active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && !Mirror(pod) &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Critical reports whether nodes need a pod to become ready, so that the webhook is never
// asked about it (SPEC §4.13).
func Critical(pod *corev1.Pod) bool {
	return pod.Namespace == metav1.NamespaceSystem && pod.Spec.PriorityClassName == "system-node-critical"
}

// Mirror reports whether a pod only shows a static pod of a node: the kubelet runs
// that from a file, and changes nothing in it.
func Mirror(pod *corev1.Pod) bool {
	_, mirrors := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirrors
}
