// Package webhook is the process that admits pods and SidecarSets: it injects
// into pods from caches, and defaults and validates SidecarSets (SPEC §4, §5).
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
)

// Paths of the webhooks, as in config/webhook.
const (
	podPath        = "/mutate-pod"
	defaultingPath = "/mutate-sidecarset"
	validatingPath = "/validate-sidecarset"
)

// Options of the webhook process.
type Options struct {
	kube.Options
	// Port to serve on.
	Port int
	// URL is how the API server reaches this process from outside the cluster;
	// empty means through the Service.
	URL string
	// ServiceName is the Service in the system namespace.
	ServiceName string
	// ClientCAFile holds the CA of the API servers' client certificates; empty
	// means that everybody is answered.
	ClientCAFile string
	// ShutdownDelay is how long requests are still taken once the process is to
	// end: others hear of it late.
	ShutdownDelay time.Duration
	// FeatureGates change what SidecarSets may do.
	FeatureGates FeatureGates
}

// Run serves until the context ends. It is ready once caches are filled and the
// certificate is there; then its rules are registered.
func Run(ctx context.Context, options Options) error {
	reconciler, err := options.newReconciler()
	if err != nil {
		return err
	}
	mgr, err := options.newManager(reconciler)
	if err != nil {
		return err
	}
	metrics, err := newAdmissionMetrics(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	if err := ctrlmetrics.Registry.Register(registered(reconciler.registered.Load)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	clients, err := newClientAuthority(options.ClientCAFile)
	if err != nil {
		return err
	}
	server := &server{
		log: options.Logger, certificate: reconciler.certificate, clients: clients,
		requests: metrics.requests, inFlight: metrics.inFlight, timeouts: defaultTimeouts(), load: newLoad(defaultBounds()),
	}
	synced, err := options.register(ctx, mgr, server, metrics)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, options.Port)
	if err != nil {
		return err
	}
	// It starts before the caches and ends after them.
	if err := mgr.Add(server.on(listener)); err != nil {
		return errors.Join(fmt.Errorf("set up the webhook server: %w", err), listener.Close())
	}
	serving := server.ready(reconciler.certificate, synced)
	reconciler.reachable = options.reachable(mgr.GetAPIReader(), serving)
	if err := options.addChecks(mgr, reconciler, serving); err != nil {
		return errors.Join(err, listener.Close())
	}
	lasting, end := server.delayShutdown(ctx, options.ShutdownDelay)
	defer end()
	if err := mgr.Start(lasting); err != nil {
		return fmt.Errorf("run the webhook: %w", err)
	}
	return nil
}

// newManager watches the objects that the reconciler writes, and runs it.
func (o Options) newManager(reconciler *reconciler) (*kube.Manager, error) {
	var registered error
	mgr, err := o.NewManager(func(options *manager.Options) {
		registered = cmp.Or(
			admissionregistrationv1.AddToScheme(options.Scheme), apiextensionsv1.AddToScheme(options.Scheme), discoveryv1.AddToScheme(options.Scheme),
		)
		watchOwnObjects(options.Cache.ByObject)
		options.Cache.NewInformer = reconciler.sets.observing(options.Cache.NewInformer)
	})
	if err := cmp.Or(registered, err); err != nil {
		return nil, err
	}
	reconciler.client = mgr.GetClient()
	return mgr, reconciler.addTo(mgr)
}

func (o Options) addChecks(mgr *kube.Manager, reconciler *reconciler, serving healthz.Checker) error {
	checks := map[string]healthz.Checker{"serving": serving, "watches": notCutOff(mgr.Watches)}
	if o.URL != "" {
		checks["registered"] = reconciler.Registered
	}
	for name, check := range checks {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("set up health checks: %w", err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("set up health checks: %w", err)
	}
	return nil
}

// endpointDelay is how long the nodes may take to see that the Service has its first
// endpoint.
const endpointDelay = 5 * time.Second

// reachable reports whether the API server would reach a replica: this process at its
// URL, or else one behind the Service.
func (o Options) reachable(live client.Reader, serving healthz.Checker) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		if o.URL != "" {
			return serving(nil) == nil, nil
		}
		var slices discoveryv1.EndpointSliceList
		err := live.List(ctx, &slices, client.InNamespace(o.SystemNamespace), client.MatchingLabels{discoveryv1.LabelServiceName: o.ServiceName})
		if err != nil {
			return false, fmt.Errorf("look whether Service %s/%s has an endpoint: %w", o.SystemNamespace, o.ServiceName, err)
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

// cutOffAfter is how long a replica may be without the API server before others
// are to answer.
const cutOffAfter = 10 * time.Second

// notCutOff stays nil while the API server answers that it cannot convert
// SidecarSets: conversion needs replicas that are ready.
func notCutOff(watches *kube.Watches) healthz.Checker {
	return func(*http.Request) error {
		return cmp.Or(
			watches.CutOff(&v1alpha1.SidecarSet{}, cutOffAfter), watches.CutOff(&corev1.Namespace{}, cutOffAfter),
			watches.CutOff(&appsv1.ControllerRevision{}, cutOffAfter),
		)
	}
}

func (o Options) newReconciler() (*reconciler, error) {
	authority, err := newAuthority(o.ServiceName, o.SystemNamespace, o.URL)
	if err != nil {
		return nil, err
	}
	made := &reconciler{
		secret:    client.ObjectKey{Namespace: o.SystemNamespace, Name: certificateSecret},
		authority: authority,
		at:        endpoint{url: o.URL, service: o.ServiceName, namespace: o.SystemNamespace},
		log:       o.Logger,
		now:       time.Now,
		sets:      &setWatch{now: time.Now},
	}
	if o.URL == "" {
		made.endpointDelay = endpointDelay
	}
	return made, nil
}

// watchOwnObjects limits the watches to the objects that this process keeps, as
// its rights do.
func watchOwnObjects(watched map[client.Object]cache.ByObject) {
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
	}
	for object, by := range watched {
		switch object.(type) {
		case *corev1.Secret:
			by.Field = named(certificateSecret).Field
		case *corev1.ConfigMap:
			by.Field = named(v1alpha1.ConfigurationName).Field
		}
		watched[object] = by
	}
	watched[&admissionregistrationv1.MutatingWebhookConfiguration{}] = named(configurationName)
	watched[&admissionregistrationv1.ValidatingWebhookConfiguration{}] = named(configurationName)
	watched[&apiextensionsv1.CustomResourceDefinition{}] = named(definitionKey().Name)
}

// maxConcurrentValidations bounds what SidecarSets ask of the API server at once.
const maxConcurrentValidations = 16

// register puts the handlers on the server. The result reports whether all that
// they read has been seen.
func (o Options) register(ctx context.Context, mgr *kube.Manager, server *server, metrics *admissionMetrics) (toolscache.InformerSynced, error) {
	index := newSetIndex(o.Logger, metrics)
	informer, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.SidecarSet{})
	if err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	registration, err := informer.AddEventHandler(index.handler())
	if err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	for _, read := range []client.Object{&corev1.Namespace{}, &corev1.ConfigMap{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, read); err != nil {
			return nil, fmt.Errorf("watch %T: %w", read, err)
		}
	}
	if err := indexRevisions(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	decoder := admission.NewDecoder(mgr.GetScheme())
	of := func(object client.Object) fresh {
		return fresh{cached: mgr.GetCache(), live: mgr.GetAPIReader(), stale: func() error { return mgr.Watches.Current(object) }}
	}
	pods := &podHandler{
		sets:       &setsNow{fresh: of(&v1alpha1.SidecarSet{}), index: index, log: o.Logger, clock: clock.RealClock{}},
		namespaces: of(&corev1.Namespace{}),
		revisions:  revisionSource{fresh: of(&appsv1.ControllerRevision{}), systemNamespace: o.SystemNamespace},
		metrics:    metrics, now: metav1.Now,
	}
	server.Register(podPath, podSize(), once(registration.HasSynced, reviews(pods.answer)))
	server.Register(defaultingPath, setSize(), reviews(reviewed(&defaulter{decoder: decoder})))
	server.Register(validatingPath, setSize(), server.load.atMost(maxConcurrentValidations, "validations", reviews(reviewed(&validator{
		decoder: decoder, sets: of(&v1alpha1.SidecarSet{}), live: mgr.GetAPIReader(), cached: mgr.GetCache(), dryRun: podDryRun{mgr.GetClient()},
		gates: o.FeatureGates, systemNamespace: o.SystemNamespace,
	}))))
	server.Register(conversionPath, conversionSize(), convert)
	return registration.HasSynced, nil
}

var errNotSynced = errors.New("the webhook does not know all SidecarSets yet")

// once answers nobody before caches are filled.
func once(synced toolscache.InformerSynced, respond responder) responder {
	return func(ctx context.Context, buffers *requestBuffers) (status int, err error) {
		if !synced() {
			return http.StatusServiceUnavailable, errNotSynced
		}
		return respond(ctx, buffers)
	}
}
