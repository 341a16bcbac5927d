package validation

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
)

// Overlap reports whether both specs can match the same pod. The labels of such a pod satisfy both selectors, and
// the namespace of the pod satisfies both scopes. Overlap does not depend on the labels of existing namespaces,
// because these labels may change.
func Overlap(a, b *v1alpha1.SidecarSetSpec) bool {
	if match.MatchesNothing(a.Selector) || match.MatchesNothing(b.Selector) {
		return false
	}
	return satisfiable(append(requirements(a.Selector), requirements(b.Selector)...)) &&
		satisfiable(append(namespaceRequirements(a), namespaceRequirements(b)...))
}

func namespaceRequirements(spec *v1alpha1.SidecarSetSpec) []metav1.LabelSelectorRequirement {
	all := requirements(spec.NamespaceSelector)
	if spec.Namespace == "" {
		return all
	}
	return append(all, in(corev1.LabelMetadataName, spec.Namespace))
}

func requirements(selector *metav1.LabelSelector) []metav1.LabelSelectorRequirement {
	if selector == nil {
		return nil
	}
	all := append([]metav1.LabelSelectorRequirement{}, selector.MatchExpressions...)
	for key, value := range selector.MatchLabels {
		all = append(all, in(key, value))
	}
	return all
}

func in(key, value string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}}
}

// labelRange contains the values of a label that satisfy the requirements.
type labelRange struct {
	required, absent bool
	// allowed is nil if every value is allowed.
	allowed   sets.Set[string]
	forbidden sets.Set[string]
}

// satisfiable checks each label separately, because a requirement concerns only one label.
func satisfiable(all []metav1.LabelSelectorRequirement) bool {
	ranges := map[string]*labelRange{}
	for i := range all {
		of := ranges[all[i].Key]
		if of == nil {
			of = &labelRange{forbidden: sets.New[string]()}
			ranges[all[i].Key] = of
		}
		of.narrow(&all[i])
	}
	for _, of := range ranges {
		if !of.possible() {
			return false
		}
	}
	return true
}

func (r *labelRange) narrow(by *metav1.LabelSelectorRequirement) {
	switch by.Operator {
	case metav1.LabelSelectorOpExists:
		r.required = true
	case metav1.LabelSelectorOpDoesNotExist:
		r.absent = true
	case metav1.LabelSelectorOpNotIn:
		r.forbidden.Insert(by.Values...)
	case metav1.LabelSelectorOpIn:
		r.required = true
		if r.allowed == nil {
			r.allowed = sets.New(by.Values...)
		} else {
			r.allowed = r.allowed.Intersection(sets.New(by.Values...))
		}
	}
}

func (r *labelRange) possible() bool {
	if r.absent {
		return !r.required
	}
	return r.allowed == nil || r.allowed.Difference(r.forbidden).Len() > 0
}
