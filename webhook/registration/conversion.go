package registration

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// servicePort is that of the Service, as in config/webhook.
const servicePort = 443

func definitionKey() client.ObjectKey {
	return client.ObjectKey{Name: "sidecarsets." + v1alpha1.GroupVersion.Group}
}

// conversion is what the CustomResourceDefinition says about an endpoint. It is
// not in the manifest: to apply that again must not undo what is written here.
func (e endpoint) conversion(bundle []byte) *apiextensionsv1.CustomResourceConversion {
	reached := &apiextensionsv1.WebhookClientConfig{URL: e.at(ConversionPath), CABundle: bundle}
	if reached.URL == nil {
		reached.Service = &apiextensionsv1.ServiceReference{
			Namespace: e.namespace, Name: e.service, Path: new(ConversionPath), Port: new(int32(servicePort)),
		}
	}
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: reached, ConversionReviewVersions: []string{"v1"}},
	}
}

func (r *Reconciler) definition(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := r.client.Get(ctx, definitionKey(), definition); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s (config/crd defines it): %w", definitionKey().Name, err)
	}
	return definition, nil
}

// writeConversion corrects the conversion of SidecarSets, and nothing else.
func (r *Reconciler) writeConversion(ctx context.Context, want *apiextensionsv1.CustomResourceConversion) error {
	live, err := r.definition(ctx)
	if err != nil || equality.Semantic.DeepEqual(live.Spec.Conversion, want) {
		return err
	}
	r.conversionWritten = r.now()
	definition := live.DeepCopy()
	definition.Spec.Conversion = want
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, definition, patch); err != nil {
		return fmt.Errorf("write the conversion of CustomResourceDefinition %s: %w", definition.Name, err)
	}
	return nil
}
