package rollout

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
)

// OldWhenRecreated returns the reason why recreated pods would not get the newest content of a
// SidecarSet, or an empty string (SPEC §13.1). installed is the webhook of pods, or nil if the webhook is not
// known.
func OldWhenRecreated(set *v1alpha1.SidecarSet, installed *admissionregistrationv1.MutatingWebhook) string {
	scope, _ := match.NewScope(&set.Spec) // with an error, the scope contains all pods that could match
	injection, conditions := &set.Spec.InjectionStrategy, match.UnknownConditions(installed, scope)
	switch {
	case set.DeletionTimestamp != nil:
		return "it is being deleted: recreated pods would lack its sidecars"
	case injection.Paused:
		return "spec.injectionStrategy.paused is true: recreated pods would lack its sidecars"
	case injection.Revision != nil:
		return "spec.injectionStrategy.revision is set: recreated pods would get the pinned revision, not the newest one"
	case len(conditions) > 0:
		return fmt.Sprintf("match conditions of the webhook of pods (%s) may leave out recreated pods: they are not evaluated", strings.Join(conditions, ", "))
	}
	return ""
}
