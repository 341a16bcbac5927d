// Package policy validates RolloutPolicies beyond their CustomResourceDefinition.
package policy

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/internal/gate"
	"github.com/outrigger/outrigger/internal/stage"
)

// Introduced returns the errors of a policy that the stored policy does not have (SPEC 11.1.6). A policy
// that was stored with errors can be changed otherwise. stored is nil at creation.
func Introduced(policy, stored *outriggerv1.RolloutPolicy) []string {
	found := problems(policy)
	if stored == nil {
		return found
	}
	before := problems(stored)
	return slices.DeleteFunc(found, func(problem string) bool { return slices.Contains(before, problem) })
}

// problems returns the errors for which a run would not begin a step.
func problems(policy *outriggerv1.RolloutPolicy) (found []string) {
	if _, err := metav1.LabelSelectorAsSelector(&policy.Spec.Selector); err != nil {
		found = append(found, fmt.Sprintf("RolloutPolicy %s: selector: %s; correct the selector", policy.Name, err))
	}
	for i, window := range policy.Spec.Windows {
		if err := stage.CheckWindow(window); err != nil {
			found = append(found, fmt.Sprintf("RolloutPolicy %s: windows[%d]: %s; correct the window", policy.Name, i, err))
		}
	}
	for i := range policy.Spec.Gates {
		for _, err := range gate.Problems(policy.Name, &policy.Spec.Gates[i]) {
			found = append(found, err.Error())
		}
	}
	return found
}
