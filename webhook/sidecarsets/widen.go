package sidecarsets

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
)

// widen makes API servers call the webhook for the pods of a valid SidecarSet before the SidecarSet is
// accepted. widen does not write in a dry run, or for an update that selects no further pods.
func (v *Validator) widen(ctx context.Context, req *admission.Request, set, stored *v1alpha1.SidecarSet) error {
	if v.Widen == nil || isDryRun(req) {
		return nil
	}
	added, before := selectedBy(set), match.Condition{}
	if stored != nil {
		before = selectedBy(stored)
	}
	if before.Covers(added) {
		return nil
	}
	return v.Widen(ctx, added)
}

// selectedBy returns the condition of the pods that a SidecarSet could select. If the selectors cannot be
// parsed, the condition contains all pods that the SidecarSet could match.
func selectedBy(set *v1alpha1.SidecarSet) match.Condition {
	scope, _ := match.NewScope(&set.Spec)
	return match.NewCondition(scope)
}
