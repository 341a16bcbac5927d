package registration

import (
	"cmp"
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// AddToScheme adds the types of the objects that a Reconciler reads and writes.
func AddToScheme(scheme *runtime.Scheme) error {
	return cmp.Or(admissionregistrationv1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme))
}

// LimitCache limits what is watched to the objects that a Reconciler reads, as the
// rights of its process do.
func LimitCache(watched map[client.Object]cache.ByObject) {
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
	}
	for object, by := range watched {
		if _, isSecret := object.(*corev1.Secret); isSecret {
			by.Field = named(certificateSecret).Field
			watched[object] = by
		}
	}
	watched[&admissionregistrationv1.MutatingWebhookConfiguration{}] = named(configurationName)
	watched[&admissionregistrationv1.ValidatingWebhookConfiguration{}] = named(configurationName)
	watched[&apiextensionsv1.CustomResourceDefinition{}] = named(definitionKey().Name)
}

// ObserveSets lets the reconciler see when a cache watches SidecarSets: it wraps what
// makes the informers of that cache.
func (r *Reconciler) ObserveSets(made NewInformerFunc) NewInformerFunc { return r.sets.observing(made) }

// AddTo has the manager run the reconciler whenever one of its objects changes, and
// at the start, when none of them may exist. serving is the readiness of this process.
func (r *Reconciler) AddTo(mgr manager.Manager, serving healthz.Checker) error {
	r.client = mgr.GetClient()
	r.reachable = r.endpoint.reachable(mgr.GetAPIReader(), serving)
	request := reconcile.Request{NamespacedName: r.secret}
	toSecret := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{request}
	})
	atStart := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(request)
		return nil
	})
	err := builder.ControllerManagedBy(mgr).Named("webhook-keeper").
		Watches(&corev1.Secret{}, toSecret).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, toSecret).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, toSecret).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, toSecret).
		WatchesRawSource(atStart).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler of certificate and configurations: %w", err)
	}
	return nil
}

// reachable reports whether the API server would reach a replica: this process at its
// URL, or else one behind the Service.
func (e endpoint) reachable(live client.Reader, serving healthz.Checker) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		if e.url != "" {
			return serving(nil) == nil, nil
		}
		var slices discoveryv1.EndpointSliceList
		err := live.List(ctx, &slices, client.InNamespace(e.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: e.service})
		if err != nil {
			return false, fmt.Errorf("look whether Service %s/%s has an endpoint: %w", e.namespace, e.service, err)
		}
		for i := range slices.Items {
			for j := range slices.Items[i].Endpoints {
				if ready := slices.Items[i].Endpoints[j].Conditions.Ready; ready != nil && *ready {
					return true, nil
				}
			}
		}
		return false, nil
	}
}
