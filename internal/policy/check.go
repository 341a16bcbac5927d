// Package policy checks the rules for RolloutPolicies that the CustomResourceDefinition cannot express.
package policy

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/internal/gate"
	"github.com/outrigger/outrigger/internal/stage"
)

// Introduced returns the errors of a policy that the stored policy does not have (SPEC 11.1.6). Therefore,
// a policy that was stored with errors can still be changed. stored is nil at creation.
func Introduced(policy, stored *outriggerv1.RolloutPolicy) field.ErrorList {
	found := problems(&policy.Spec)
	if stored == nil {
		return found
	}
	var before []string
	for _, problem := range problems(&stored.Spec) {
		before = append(before, withoutIndex(problem))
	}
	return slices.DeleteFunc(found, func(problem *field.Error) bool { return slices.Contains(before, withoutIndex(problem)) })
}

// withoutIndex returns the text of a problem without the index of its window, because an update may add and
// remove other windows. The value in the text identifies the window.
func withoutIndex(problem *field.Error) string {
	if of, _, found := strings.Cut(problem.Field, "windows["); found {
		return of + "windows: " + problem.ErrorBody()
	}
	return problem.Error()
}

// problems returns the errors in a policy that prevent a run from starting a step.
func problems(policy *outriggerv1.RolloutPolicySpec) (found field.ErrorList) {
	spec := field.NewPath("spec")
	if _, err := metav1.LabelSelectorAsSelector(&policy.Selector); err != nil {
		found = append(found, field.Invalid(spec.Child("selector"), metav1.FormatLabelSelector(&policy.Selector), err.Error()+"; correct the selector"))
	}
	for i, window := range policy.Windows {
		if err := stage.CheckWindow(window); err != nil {
			found = append(found, field.Invalid(spec.Child("windows").Index(i), strings.TrimSpace(window.Schedule+" "+window.TimeZone), err.Error()+"; correct the window"))
		}
	}
	for i := range policy.Gates {
		at := spec.Child("gates").Key(policy.Gates[i].Name)
		for _, problem := range gate.Problems(&policy.Gates[i]) {
			found = append(found, field.Invalid(at.Child(problem.Field), problem.Value, fmt.Sprintf("%s; %s", problem.Err, problem.Remedy)))
		}
	}
	return found
}
