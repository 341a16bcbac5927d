package registration

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conversion returns the conversion for the CustomResourceDefinition. The manifest in config/crd
// has no conversion, so that a second apply does not remove the written conversion.
func (e endpoint) conversion(bundle []byte) *apiextensionsv1.CustomResourceConversion {
	config := &apiextensionsv1.WebhookClientConfig{URL: e.at(ConversionPath), CABundle: bundle}
	if config.URL == nil {
		config.Service = &apiextensionsv1.ServiceReference{
			Namespace: e.namespace, Name: e.service, Path: new(ConversionPath), Port: new(int32(443)),
		}
	}
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: config, ConversionReviewVersions: []string{"v1"}},
	}
}

// noteConversion notes the time at which another replica has written the first conversion. The API server
// then ends the watches of this process, too.
func (r *Reconciler) noteConversion(live *apiextensionsv1.CustomResourceDefinition) {
	missing := live.Spec.Conversion == nil || live.Spec.Conversion.Webhook == nil
	if r.conversionMissing && !missing {
		r.conversionWritten, r.watchLost = r.now(), false
	}
	r.conversionMissing = missing
}

// writeConversion corrects spec.conversion of the definition.
func (r *Reconciler) writeConversion(ctx context.Context, live *apiextensionsv1.CustomResourceDefinition, bundle []byte) error {
	wanted := live.DeepCopy()
	wanted.Spec.Conversion = r.endpoint.conversion(bundle)
	if equality.Semantic.DeepEqual(live.Spec.Conversion, wanted.Spec.Conversion) {
		return nil
	}
	r.conversionWritten, r.watchLost, r.conversionMissing = r.now(), false, false
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, wanted, patch); err != nil {
		return fmt.Errorf("write the conversion of CustomResourceDefinition %s: %w", wanted.Name, err)
	}
	return nil
}
