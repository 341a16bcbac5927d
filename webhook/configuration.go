package webhook

import (
	"bytes"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/outrigger/outrigger/config/webhook"
)

// configurationName is that of both webhook configurations.
const configurationName = "outrigger"

// configurations are what the API server is to be told about this webhook.
type configurations struct {
	mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	conversion *apiextensionsv1.CustomResourceConversion
}

// endpoint is where the API server reaches this webhook.
type endpoint struct {
	// url is the base; empty means the Service.
	url       string
	service   string
	namespace string
}

// newConfigurations adapts the shipped manifests to an endpoint.
func newConfigurations(at endpoint) (*configurations, error) {
	shipped := &configurations{
		mutating:   &admissionregistrationv1.MutatingWebhookConfiguration{},
		validating: &admissionregistrationv1.ValidatingWebhookConfiguration{},
		conversion: at.conversion(),
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(webhook.Manifests), len(webhook.Manifests))
	for _, into := range []any{shipped.mutating, shipped.validating} {
		if err := documents.Decode(into); err != nil {
			return nil, fmt.Errorf("read the shipped webhook configurations: %w", err)
		}
	}
	for i := range shipped.mutating.Webhooks {
		hook := &shipped.mutating.Webhooks[i]
		at.apply(&hook.ClientConfig)
		keepOut(at.namespace, hook.NamespaceSelector.MatchExpressions)
	}
	for i := range shipped.validating.Webhooks {
		at.apply(&shipped.validating.Webhooks[i].ClientConfig)
	}
	return shipped, nil
}

func (e endpoint) apply(to *admissionregistrationv1.WebhookClientConfig) {
	if e.url != "" {
		to.URL = new(strings.TrimSuffix(e.url, "/") + *to.Service.Path)
		to.Service = nil
		return
	}
	to.Service.Name, to.Service.Namespace = e.service, e.namespace
}

// keepOut names the system namespace in the term that excludes it.
func keepOut(namespace string, terms []metav1.LabelSelectorRequirement) {
	for i := range terms {
		if terms[i].Key == corev1.LabelMetadataName {
			terms[i].Values = []string{namespace}
		}
	}
}

// trusting returns copies whose webhooks trust a CA bundle.
func (c *configurations) trusting(bundle []byte) *configurations {
	trusting := &configurations{mutating: c.mutating.DeepCopy(), validating: c.validating.DeepCopy(), conversion: c.conversion.DeepCopy()}
	trusting.conversion.Webhook.ClientConfig.CABundle = bundle
	for i := range trusting.mutating.Webhooks {
		trusting.mutating.Webhooks[i].ClientConfig.CABundle = bundle
	}
	for i := range trusting.validating.Webhooks {
		trusting.validating.Webhooks[i].ClientConfig.CABundle = bundle
	}
	return trusting
}

// trusts tells whether every webhook of the configurations trusts a CA.
func (c *configurations) trusts(ca []byte) bool {
	if webhook := c.conversion.Webhook; webhook == nil || !bytes.Contains(webhook.ClientConfig.CABundle, ca) {
		return false
	}
	for i := range c.mutating.Webhooks {
		if !bytes.Contains(c.mutating.Webhooks[i].ClientConfig.CABundle, ca) {
			return false
		}
	}
	for i := range c.validating.Webhooks {
		if !bytes.Contains(c.validating.Webhooks[i].ClientConfig.CABundle, ca) {
			return false
		}
	}
	return len(c.mutating.Webhooks)+len(c.validating.Webhooks) > 0
}
