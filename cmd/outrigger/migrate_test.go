package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/kube"
)

// Before the installation, the check reports the namespaces that config/webhook excludes.
func TestTheWebhookOfTheCheck(t *testing.T) {
	installed := admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: kube.WebhookConfigurationName},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: kube.PodWebhookName, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"mesh": "on"}}}},
	}
	for name, c := range map[string]struct {
		installed []admissionregistrationv1.MutatingWebhookConfiguration
		called    []string
	}{
		"not installed": {[]admissionregistrationv1.MutatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "kruise-mutating-webhook-configuration"}}}, []string{"web", "mesh"}},
		"installed":     {[]admissionregistrationv1.MutatingWebhookConfiguration{installed}, []string{"mesh"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := podWebhook(c.installed)
			require.NoError(t, err)
			assert.Empty(t, match.UnknownConditions(found, match.Scope{}))
			webhook := match.NewWebhook(found, "kruise-system")
			var called []string
			for _, namespace := range []string{"web", "rook-ceph", "mesh"} {
				labels := map[string]string{corev1.LabelMetadataName: namespace}
				if namespace == "mesh" {
					labels["mesh"] = "on"
				}
				if webhook.Namespace(namespace, labels) {
					called = append(called, namespace)
				}
			}
			assert.Equal(t, c.called, called)
		})
	}
}
