package registration

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
)

// LimitCache limits the watches to the objects that a Reconciler reads. The RBAC rules of the
// process have the same limits.
func LimitCache(watched map[client.Object]cache.ByObject) {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	for object, by := range watched {
		switch object.(type) {
		case *corev1.Secret:
			by.Field = named(certificateSecret)
		case *corev1.ConfigMap:
			by.Field = named(v1alpha1.ConfigurationName)
		}
		watched[object] = by
	}
	watched[&admissionregistrationv1.MutatingWebhookConfiguration{}] = cache.ByObject{Field: named(configurationName)}
	watched[&admissionregistrationv1.ValidatingWebhookConfiguration{}] = cache.ByObject{Field: named(configurationName)}
	watched[&apiextensionsv1.CustomResourceDefinition{}] = cache.ByObject{Field: named(definitionName)}
}

// AddTo adds the reconciler to a manager. The reconciler runs at the start, even if the watched objects do
// not exist yet, and after each change of a watched object. serving is the readiness check of this process.
func (r *Reconciler) AddTo(mgr *kube.Manager, serving healthz.Checker) error {
	r.client, r.live = mgr.GetClient(), mgr.GetAPIReader()
	r.watchDown = func() time.Duration { return mgr.Watches.Down(&v1alpha1.SidecarSet{}) }
	r.reachable = r.endpoint.reachable(mgr.GetAPIReader(), serving)
	request := reconcile.Request{NamespacedName: r.secret}
	toSecret := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{request}
	})
	atStart := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(request)
		return nil
	})
	keeper := builder.ControllerManagedBy(mgr).Named("webhook-keeper").
		Watches(&corev1.Secret{}, toSecret).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, toSecret).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, toSecret).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, toSecret).
		WatchesRawSource(atStart).
		WithOptions(controller.Options{RateLimiter: kube.RateLimiter()})
	if r.matchConditions {
		// A change of the status does not change the selectors. The UIDs are also compared, because a
		// recreated SidecarSet may have the generation of the deleted SidecarSet.
		recreated := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}
		keeper.Watches(&v1alpha1.SidecarSet{}, toSecret, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, recreated)))
	}
	if err := keeper.Complete(r); err != nil {
		return fmt.Errorf("set up the reconciler of the registration: %w", err)
	}
	return nil
}

// reachable returns a function that reports whether API servers can reach the webhook. With a URL, this
// process must be ready. Without a URL, at least one replica of the Service must be ready.
func (e endpoint) reachable(live client.Reader, serving healthz.Checker) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		if e.url != "" {
			return serving(nil) == nil, nil
		}
		var slices discoveryv1.EndpointSliceList
		err := live.List(ctx, &slices, client.InNamespace(e.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: e.service})
		if err != nil {
			return false, fmt.Errorf("list the endpoints of Service %s/%s: %w", e.namespace, e.service, err)
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
