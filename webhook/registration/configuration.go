package registration

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	applyadmissionregistrationv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
)

// Names of config/webhook.
const (
	configurationName = "outrigger"
	podWebhook        = "pods.outrigger.io"
	setWebhook        = "sidecarsets.outrigger.io"
)

// Paths of the webhooks, as in config/webhook.
const (
	// PodPath is where pods are injected.
	PodPath = "/mutate-pod"
	// DefaultingPath is where SidecarSets are completed.
	DefaultingPath = "/mutate-sidecarset"
	// ValidatingPath is where SidecarSets are refused.
	ValidatingPath = "/validate-sidecarset"
	// ConversionPath is where ConversionReviews go.
	ConversionPath = "/convert"
)

// endpoint is where the API server reaches this webhook.
type endpoint struct {
	// url is the base; empty means the Service.
	url       string
	service   string
	namespace string
}

// at is the URL of a path; nil means the Service that the manifests name.
func (e endpoint) at(path string) *string {
	if e.url == "" {
		return nil
	}
	return new(strings.TrimSuffix(e.url, "/") + path)
}

// ownedWebhook is what this role writes of a webhook of config/webhook. All else,
// such as selectors and timeouts, is of whoever installs.
type ownedWebhook struct {
	name, path string
	// rules switch the webhook on. Without any, as shipped, it is never called.
	rules []admissionregistrationv1.RuleWithOperations
}

func ownedMutating() []ownedWebhook {
	created := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admissionregistrationv1.NamespacedScope),
		},
	}
	return []ownedWebhook{
		{name: podWebhook, path: PodPath, rules: []admissionregistrationv1.RuleWithOperations{created}},
		{name: setWebhook, path: DefaultingPath},
	}
}

func ownedValidating() []ownedWebhook {
	return []ownedWebhook{{name: setWebhook, path: ValidatingPath}}
}

// installedWebhook is a webhook as the API server has it.
type installedWebhook struct {
	name   string
	client *admissionregistrationv1.WebhookClientConfig
	rules  []admissionregistrationv1.RuleWithOperations
}

func mutatingInstalled(c *admissionregistrationv1.MutatingWebhookConfiguration) []installedWebhook {
	all := make([]installedWebhook, len(c.Webhooks))
	for i := range c.Webhooks {
		all[i] = installedWebhook{c.Webhooks[i].Name, &c.Webhooks[i].ClientConfig, c.Webhooks[i].Rules}
	}
	return all
}

func validatingInstalled(c *admissionregistrationv1.ValidatingWebhookConfiguration) []installedWebhook {
	all := make([]installedWebhook, len(c.Webhooks))
	for i := range c.Webhooks {
		all[i] = installedWebhook{c.Webhooks[i].Name, &c.Webhooks[i].ClientConfig, c.Webhooks[i].Rules}
	}
	return all
}

// find returns nil for a webhook that whoever installed has left out.
func find(name string, in []installedWebhook) *installedWebhook {
	at := slices.IndexFunc(in, func(i installedWebhook) bool { return i.name == name })
	if at < 0 {
		return nil
	}
	return &in[at]
}

// outdated reports whether webhooks need a change. One that is reached in another way
// than this role is has to be installed anew: it names a Service or an URL.
func (e endpoint) outdated(hooks []ownedWebhook, in []installedWebhook, bundle []byte) (bool, error) {
	outdated := false
	for _, h := range hooks {
		i := find(h.name, in)
		switch {
		case i == nil:
			continue
		case e.url != "" && i.client.Service != nil:
			return false, fmt.Errorf("webhook %s names a Service, but this process has an --url: delete the configuration and install it with that URL", h.name)
		case e.url == "" && i.client.URL != nil:
			return false, fmt.Errorf("webhook %s names an URL, but this process has no --url: delete the configuration and apply config/webhook", h.name)
		}
		outdated = outdated || !e.upToDate(h, i, bundle)
	}
	return outdated, nil
}

// upToDate reports whether a webhook needs no change.
func (e endpoint) upToDate(h ownedWebhook, i *installedWebhook, bundle []byte) bool {
	return bytes.Equal(i.client.CABundle, bundle) && equality.Semantic.DeepEqual(i.client.URL, e.at(h.path)) &&
		(len(h.rules) == 0 || equality.Semantic.DeepEqual(i.rules, h.rules))
}

func (e endpoint) clientConfig(h ownedWebhook, bundle []byte) *applyadmissionregistrationv1.WebhookClientConfigApplyConfiguration {
	applied := applyadmissionregistrationv1.WebhookClientConfig().WithCABundle(bundle...)
	applied.URL = e.at(h.path)
	return applied
}

// mutating is what the role applies of the webhooks that are installed.
func (e endpoint) mutating(live *admissionregistrationv1.MutatingWebhookConfiguration, bundle []byte) *applyadmissionregistrationv1.MutatingWebhookConfigurationApplyConfiguration {
	applied := applyadmissionregistrationv1.MutatingWebhookConfiguration(live.Name).WithResourceVersion(live.ResourceVersion)
	for _, h := range ownedMutating() {
		if find(h.name, mutatingInstalled(live)) == nil {
			continue
		}
		one := applyadmissionregistrationv1.MutatingWebhook().WithName(h.name).WithClientConfig(e.clientConfig(h, bundle))
		for _, rule := range h.rules {
			one.WithRules(applyadmissionregistrationv1.RuleWithOperations().WithOperations(rule.Operations...).
				WithAPIGroups(rule.APIGroups...).WithAPIVersions(rule.APIVersions...).WithResources(rule.Resources...).WithScope(*rule.Scope))
		}
		applied.WithWebhooks(one)
	}
	return applied
}

// validating is what the role applies of the webhooks that are installed.
func (e endpoint) validating(live *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) *applyadmissionregistrationv1.ValidatingWebhookConfigurationApplyConfiguration {
	applied := applyadmissionregistrationv1.ValidatingWebhookConfiguration(live.Name).WithResourceVersion(live.ResourceVersion)
	for _, h := range ownedValidating() {
		if find(h.name, validatingInstalled(live)) != nil {
			applied.WithWebhooks(applyadmissionregistrationv1.ValidatingWebhook().WithName(h.name).WithClientConfig(e.clientConfig(h, bundle)))
		}
	}
	return applied
}
