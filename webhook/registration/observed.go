package registration

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// observed is what the API server has of the webhooks; what is not installed
// is nil.
type observed struct {
	mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	conversion *apiextensionsv1.CustomResourceConversion
}

func (r *Reconciler) observe(ctx context.Context) (*observed, error) {
	definition, err := r.definition(ctx)
	if err != nil {
		return nil, err
	}
	seen := &observed{
		mutating:   &admissionregistrationv1.MutatingWebhookConfiguration{},
		validating: &admissionregistrationv1.ValidatingWebhookConfiguration{},
		conversion: definition.Spec.Conversion,
	}
	key := client.ObjectKey{Name: configurationName}
	if err := r.client.Get(ctx, key, seen.mutating); apierrors.IsNotFound(err) {
		seen.mutating = nil
	} else if err != nil {
		return nil, fmt.Errorf("read MutatingWebhookConfiguration %s: %w", configurationName, err)
	}
	if err := r.client.Get(ctx, key, seen.validating); apierrors.IsNotFound(err) {
		seen.validating = nil
	} else if err != nil {
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", configurationName, err)
	}
	return seen, nil
}

// callsPodWebhook reports whether the API server asks about pods.
func (r *observed) callsPodWebhook() bool {
	if r.mutating == nil {
		return false
	}
	pods := find(podWebhook, mutatingInstalled(r.mutating))
	return pods != nil && len(pods.rules) > 0
}

// trusts reports whether every webhook that is installed trusts a CA.
func (r *observed) trusts(ca []byte) bool {
	if r.conversion == nil {
		return false
	}
	if hook := r.conversion.Webhook; hook == nil || !bytes.Contains(hook.ClientConfig.CABundle, ca) {
		return false
	}
	var all []installedWebhook
	if r.mutating != nil {
		all = mutatingInstalled(r.mutating)
	}
	if r.validating != nil {
		all = append(all, validatingInstalled(r.validating)...)
	}
	return !slices.ContainsFunc(all, func(i installedWebhook) bool { return !bytes.Contains(i.client.CABundle, ca) })
}
