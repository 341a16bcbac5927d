package kube

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The webhook of pods and its configuration have these names in config/webhook.
const (
	WebhookConfigurationName = "outrigger"
	PodWebhookName           = "pods.outrigger.io"
)

// PodWebhook returns the installed webhook of pods, or nil if no such webhook is installed.
func PodWebhook(ctx context.Context, reader client.Reader) (*admissionregistrationv1.MutatingWebhook, error) {
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	err := reader.Get(ctx, client.ObjectKey{Name: WebhookConfigurationName}, &configuration)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read MutatingWebhookConfiguration %s: %w", WebhookConfigurationName, err)
	}
	return WebhookNamed(&configuration, PodWebhookName), nil
}

// WebhookNamed returns the webhook with the given name. If the configuration has no webhook with this name,
// WebhookNamed returns nil.
func WebhookNamed(configuration *admissionregistrationv1.MutatingWebhookConfiguration, name string) *admissionregistrationv1.MutatingWebhook {
	for i := range configuration.Webhooks {
		if configuration.Webhooks[i].Name == name {
			return &configuration.Webhooks[i]
		}
	}
	return nil
}
