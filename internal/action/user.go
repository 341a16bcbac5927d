package action

import (
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
)

// UnconfirmedUser returns the reason why spec.requestedBy of an action may be wrong, or "". The field is
// correct if the webhook that writes the field was installed before the action was created, and the API server
// rejects actions while the webhook does not respond.
func UnconfirmedUser(a *outriggerv1.RolloutAction, configuration *admissionregistrationv1.MutatingWebhookConfiguration) string {
	const remedy = ", so spec.requestedBy may be wrong; apply config/webhook, and create the action again"
	var hook *admissionregistrationv1.MutatingWebhook
	for i := range configuration.Webhooks {
		if configuration.Webhooks[i].Name == Webhook {
			hook = &configuration.Webhooks[i]
		}
	}
	switch {
	case hook == nil || len(hook.Rules) == 0:
		return "webhook " + Webhook + " is not installed" + remedy
	case hook.FailurePolicy != nil && *hook.FailurePolicy != admissionregistrationv1.Fail:
		return "webhook " + Webhook + " does not have failurePolicy Fail" + remedy
	case !a.CreationTimestamp.After(installedAt(configuration)):
		return "the action was created before webhook " + Webhook + " was installed" + remedy
	}
	return ""
}

// installedAt returns the earliest known time at which the configuration contained the webhook for actions. The
// webhook is at least as old as each entry of managedFields that names the webhook. If no entry names the
// webhook, installedAt returns the creation time of the configuration.
func installedAt(configuration *admissionregistrationv1.MutatingWebhookConfiguration) time.Time {
	var earliest time.Time
	for _, fields := range configuration.ManagedFields {
		if fields.Time == nil || fields.FieldsV1 == nil || !strings.Contains(fields.FieldsV1.GetRawString(), Webhook) {
			continue
		}
		if earliest.IsZero() || fields.Time.Time.Before(earliest) {
			earliest = fields.Time.Time
		}
	}
	if earliest.IsZero() {
		return configuration.CreationTimestamp.Time
	}
	return earliest
}
