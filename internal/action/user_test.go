package action

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
)

func TestSpec11_13_TheUserIsConfirmedByAWebhookFromBeforeTheAction(t *testing.T) {
	const remedy = ", so spec.requestedBy may be wrong; apply config/webhook, and create the action again"
	installed := func(at time.Duration, manager string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Time: new(metav1.NewTime(created().Add(at))),
			FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{"k:{\"name\":\"` + Webhook + `\"}":{".":{},"f:rules":{}}}}`),
		}
	}
	for want, change := range map[string]func(*admissionregistrationv1.MutatingWebhookConfiguration){
		"": func(*admissionregistrationv1.MutatingWebhookConfiguration) {},
		"webhook rolloutactions.outrigger.io is not installed" + remedy: func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[0].Name = "pods.outrigger.io"
		},
		"webhook rolloutactions.outrigger.io does not have failurePolicy Fail" + remedy: func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
		},
		"the action was created before webhook rolloutactions.outrigger.io was installed" + remedy: func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.ManagedFields = c.ManagedFields[1:] // the webhook was added to an older configuration
		},
	} {
		c := &admissionregistrationv1.MutatingWebhookConfiguration{}
		c.CreationTimestamp = metav1.NewTime(created().Add(-time.Hour))
		c.ManagedFields = []metav1.ManagedFieldsEntry{installed(-time.Minute, "kubectl"), installed(0, "outrigger")}
		c.Webhooks = []admissionregistrationv1.MutatingWebhook{{
			Name: Webhook, FailurePolicy: new(admissionregistrationv1.Fail), Rules: []admissionregistrationv1.RuleWithOperations{{}},
		}}
		change(c)
		a := &outriggerv1.RolloutAction{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created())}}
		assert.Equal(t, want, UnconfirmedUser(a, c))
	}
}
