package registration

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/kube"
)

// These are the names in config/crd and config/webhook.
const (
	definitionName    = "sidecarsets.apps.kruise.io"
	configurationName = kube.WebhookConfigurationName
	podWebhook        = kube.PodWebhookName
	setWebhook        = "sidecarsets.outrigger.io"
	actionWebhook     = "rolloutactions.outrigger.io"
	policyWebhook     = "rolloutpolicies.outrigger.io"
)

// These are the paths of the webhooks, as in config/webhook.
const (
	// PodPath is the path of the webhook that injects sidecars into pods.
	PodPath = "/mutate-pod"
	// DefaultingPath is the path of the webhook that writes the defaults and hashes of SidecarSets.
	DefaultingPath = "/mutate-sidecarset"
	// ValidatingPath is the path of the webhook that validates SidecarSets.
	ValidatingPath = "/validate-sidecarset"
	// ActionPath is the path of the webhook that writes the user into RolloutActions.
	ActionPath = "/mutate-rolloutaction"
	// PolicyPath is the path of the webhook that validates RolloutPolicies.
	PolicyPath = "/validate-rolloutpolicy"
	// ConversionPath is the path of the webhook that converts SidecarSets between API versions.
	ConversionPath = "/convert"
)

// endpoint is the address of this webhook for API servers.
type endpoint struct {
	// url is the base URL. If url is empty, API servers use the Service.
	url       string
	service   string
	namespace string
}

// at returns the URL of path. at returns nil if API servers use the Service of the manifests.
func (e endpoint) at(path string) *string {
	if e.url == "" {
		return nil
	}
	return new(strings.TrimSuffix(e.url, "/") + path)
}

// hook is one of this role's webhooks in an installed configuration. The pointers of hook point into the
// configuration. Only the installer sets all other fields, such as selectors and timeouts.
type hook struct {
	name, path string
	client     *admissionregistrationv1.WebhookClientConfig
	rules      *[]admissionregistrationv1.RuleWithOperations
}

// hooksOf returns the webhooks of a configuration that this role serves.
func hooksOf(configuration client.Object) []hook {
	var hooks []hook
	switch c := configuration.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		paths := map[string]string{podWebhook: PodPath, setWebhook: DefaultingPath, actionWebhook: ActionPath}
		for i := range c.Webhooks {
			one := &c.Webhooks[i]
			hooks = append(hooks, hook{one.Name, paths[one.Name], &one.ClientConfig, &one.Rules})
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		paths := map[string]string{setWebhook: ValidatingPath, policyWebhook: PolicyPath}
		for i := range c.Webhooks {
			one := &c.Webhooks[i]
			hooks = append(hooks, hook{one.Name, paths[one.Name], &one.ClientConfig, &one.Rules})
		}
	}
	return slices.DeleteFunc(hooks, func(h hook) bool { return h.path == "" })
}

// podRules returns the rules that activate the pod webhook. The manifest has no rules for the pod
// webhook. Therefore, the API server does not call the pod webhook before this role has written
// the rules.
func podRules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admissionregistrationv1.NamespacedScope),
		},
	}}
}

// write sets this role's fields of a webhook. write returns an error if the kind of address (a Service or a
// URL) differs, because the installer chooses the kind.
func (e endpoint) write(h hook, bundle []byte) error {
	switch {
	case e.url != "" && h.client.Service != nil:
		return fmt.Errorf("webhook %s names a Service, but this process has an --url: delete the configuration and install it with that URL", h.name)
	case e.url == "" && h.client.URL != nil:
		return fmt.Errorf("webhook %s names a URL, but this process has no --url: delete the configuration and apply config/webhook", h.name)
	}
	h.client.CABundle, h.client.URL = bundle, e.at(h.path)
	if h.name == podWebhook {
		*h.rules = podRules()
	}
	return nil
}

// writeConfiguration corrects this role's fields of an installed configuration, and returns the time until
// the next change of the match condition.
func (r *Reconciler) writeConfiguration(ctx context.Context, live client.Object, bundle []byte) (wait time.Duration, err error) {
	wanted, _ := live.DeepCopyObject().(client.Object)
	activating := false
	for _, h := range hooksOf(wanted) {
		activating = activating || h.name == podWebhook && len(*h.rules) == 0
		if err := r.endpoint.write(h, bundle); err != nil {
			return 0, fmt.Errorf("write %T %s: %w", live, live.GetName(), err)
		}
	}
	if mutating, ok := wanted.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
		if wait, err = r.followSets(ctx, mutating, activating); err != nil {
			return 0, err
		}
	}
	if equality.Semantic.DeepEqual(live, wanted) {
		return wait, nil
	}
	// A strategic merge keeps fields that the Go types of this program lack.
	patch := client.StrategicMergeFrom(live, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, wanted, patch, client.FieldOwner(fieldOwner)); err != nil {
		return 0, fmt.Errorf("write %T %s: %w", live, live.GetName(), err)
	}
	return wait, nil
}

// registered contains the registration, as read from the cache of this process.
type registered struct {
	definition *apiextensionsv1.CustomResourceDefinition
	// convertedByAnother is set if the definition names the conversion webhook of another controller.
	convertedByAnother bool
	// configurations are the installed configurations. hooks are the webhooks of these
	// configurations.
	configurations []client.Object
	hooks          []hook
}

func (r *Reconciler) read(ctx context.Context) (*registered, error) {
	read := &registered{definition: &apiextensionsv1.CustomResourceDefinition{}}
	if err := r.client.Get(ctx, client.ObjectKey{Name: definitionName}, read.definition); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s (config/crd defines it): %w", definitionName, err)
	}
	read.convertedByAnother = r.endpoint.ofAnother(read.definition.Spec.Conversion)
	for _, configuration := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		err := r.client.Get(ctx, client.ObjectKey{Name: configurationName}, configuration)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read %T %s: %w", configuration, configurationName, err)
		}
		if err == nil {
			read.configurations, read.hooks = append(read.configurations, configuration), append(read.hooks, hooksOf(configuration)...)
		}
	}
	return read, nil
}

// callsPodWebhook reports whether the API server calls the pod webhook.
func (r *registered) callsPodWebhook() bool {
	return slices.ContainsFunc(r.hooks, func(h hook) bool { return h.name == podWebhook && len(*h.rules) > 0 })
}

// trusts reports whether the API server trusts a CA in every webhook of this role. If another controller converts
// SidecarSets, the API server does not call the conversion webhook of this role.
func (r *registered) trusts(ca []byte) bool {
	conversion := r.definition.Spec.Conversion
	if conversion == nil || conversion.Webhook == nil {
		return false
	}
	for _, certificate := range certificates(ca) {
		lacks := func(bundle []byte) bool { return !bytes.Contains(bundle, encode(certificate)) }
		if !r.convertedByAnother && lacks(conversion.Webhook.ClientConfig.CABundle) || slices.ContainsFunc(r.hooks, func(h hook) bool { return lacks(h.client.CABundle) }) {
			return false
		}
	}
	return true
}

// trusted returns the CAs in the webhooks of the first configuration, which is the
// MutatingWebhookConfiguration if both configurations are installed. The reconciler writes the CAs that have
// not expired into all webhooks. A CA that a user removes from this configuration is therefore removed from
// all webhooks, unless the Secret contains the CA.
func (r *registered) trusted() (all []*x509.Certificate) {
	if len(r.configurations) == 0 {
		return nil
	}
	for _, h := range hooksOf(r.configurations[0]) {
		all = append(all, certificates(h.client.CABundle)...)
	}
	return all
}
