package registration

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conversion returns the conversion for the CustomResourceDefinition. The manifest in config/crd has no
// conversion, so that another apply does not remove the conversion.
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

// If another controller replaces the conversion, such as a running manager of OpenKruise, the reconciler
// writes the conversion again after a delay. The delay doubles from minConversionDelay to maxConversionDelay
// with each write, and is reset once no other controller has replaced the conversion for conversionKept. If a
// process suspends the conversion, because no webhook converts SidecarSets, the delay is maxConversionDelay,
// so that the caches of all roles can sync (SPEC 1.4.1).
const (
	minConversionDelay = time.Second
	maxConversionDelay = time.Minute
	conversionKept     = 10 * time.Minute
)

// ofAnother reports whether a conversion names the webhook of another controller.
func (e endpoint) ofAnother(conversion *apiextensionsv1.CustomResourceConversion) bool {
	if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil {
		return false
	}
	config := conversion.Webhook.ClientConfig.DeepCopy()
	config.CABundle = nil
	return !equality.Semantic.DeepEqual(config, e.conversion(nil).Webhook.ClientConfig)
}

// conversionDelay returns the time until the reconciler may replace the current conversion. Each write ends
// the watches of SidecarSets, so two controllers must not replace each other's conversion without a delay.
func (r *Reconciler) conversionDelay(current *apiextensionsv1.CustomResourceConversion) time.Duration {
	switch {
	case r.conversionMissing && r.conversionClaimed:
		return r.conversionLost.Add(maxConversionDelay).Sub(r.now())
	case !r.endpoint.ofAnother(current):
		return 0
	}
	return r.conversionWritten.Add(r.conversionBackoff).Sub(r.now())
}

// noteConversion records the time at which another replica writes the first conversion, because the API server
// then also ends the watches of this process. noteConversion also records the time at which the definition
// loses its conversion.
func (r *Reconciler) noteConversion(live *apiextensionsv1.CustomResourceDefinition) {
	missing := live.Spec.Conversion == nil || live.Spec.Conversion.Webhook == nil
	if r.conversionMissing && !missing {
		r.conversionWritten, r.watchLost = r.now(), false
	}
	if missing && !r.conversionMissing {
		r.conversionLost = r.now()
	}
	r.conversionMissing = missing
	r.conversionClaimed = r.conversionClaimed || !missing && !r.endpoint.ofAnother(live.Spec.Conversion)
}

// writeConversion corrects spec.conversion of the definition. If the conversion of another controller must not be
// replaced yet, writeConversion returns the remaining time.
func (r *Reconciler) writeConversion(ctx context.Context, live *apiextensionsv1.CustomResourceDefinition, bundle []byte) (wait time.Duration, err error) {
	wanted := live.DeepCopy()
	wanted.Spec.Conversion = r.endpoint.conversion(bundle)
	if equality.Semantic.DeepEqual(live.Spec.Conversion, wanted.Spec.Conversion) {
		return 0, nil
	}
	if r.now().Sub(r.conversionWritten) > conversionKept {
		r.conversionBackoff = 0
	}
	if wait := r.conversionDelay(live.Spec.Conversion); wait > 0 {
		return wait, nil
	}
	written, lost := r.conversionWritten, r.watchLost
	r.conversionWritten, r.watchLost = r.now(), false
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, wanted, patch); err != nil {
		if apierrors.IsConflict(err) {
			r.conversionWritten, r.watchLost = written, lost // The watches of SidecarSets do not end.
		}
		return 0, fmt.Errorf("write the conversion of CustomResourceDefinition %s: %w", wanted.Name, err)
	}
	r.conversionClaimed, r.conversionMissing = true, false
	if r.endpoint.ofAnother(live.Spec.Conversion) {
		r.conversionBackoff = min(max(2*r.conversionBackoff, minConversionDelay), maxConversionDelay)
	}
	return 0, nil
}
