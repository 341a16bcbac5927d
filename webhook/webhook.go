// Package webhook is the process that admits pods and SidecarSets: it injects
// into pods from caches, and defaults and validates SidecarSets (SPEC §4, §5).
package webhook

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
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
	// FeatureGates change what SidecarSets may do.
	FeatureGates FeatureGates
}

// Run serves until the context ends. It is ready once caches are filled, the
// certificate is there, and the API server has been told to trust it.
func Run(ctx context.Context, options Options) error {
	keeper, err := options.newKeeper()
	if err != nil {
		return err
	}
	var registered error
	mgr, err := options.NewManager(func(o *manager.Options) {
		registered = cmp.Or(admissionregistrationv1.AddToScheme(o.Scheme), apiextensionsv1.AddToScheme(o.Scheme))
		watchOwnObjects(o.Cache.ByObject)
		o.Cache.NewInformer = keeper.sets.noting(o.Cache.NewInformer)
	})
	if err := cmp.Or(registered, err); err != nil {
		return err
	}
	keeper.client = mgr.GetClient()
	if err := keeper.addTo(mgr); err != nil {
		return err
	}
	meters, err := newMeters(metrics.Registry)
	if err != nil {
		return err
	}
	server := &server{
		log: options.Logger, port: options.Port, certificate: keeper.certificate, requests: meters.requests, limits: usualLimits(),
	}
	synced, err := options.register(ctx, mgr, server, meters)
	if err != nil {
		return err
	}
	if err := mgr.Add(serveAfter(server, keeper.first, synced)); err != nil {
		return fmt.Errorf("set up the webhook server: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("set up health checks: %w", err)
	}
	// The server answers only after everything else is there.
	if err := mgr.AddReadyzCheck("serving", server.Ready); err != nil {
		return fmt.Errorf("set up health checks: %w", err)
	}
	if err := mgr.AddReadyzCheck("sidecarsets", notCutOff(mgr.Watches)); err != nil {
		return fmt.Errorf("set up health checks: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the webhook: %w", err)
	}
	return nil
}

// cutOffAfter is how long a replica may be without the API server before others
// are to answer.
const cutOffAfter = 10 * time.Second

// notCutOff stays nil while the API server answers that it cannot convert
// SidecarSets: conversion needs replicas that are ready.
func notCutOff(watches *kube.Watches) healthz.Checker {
	return func(*http.Request) error { return watches.CutOff(&v1alpha1.SidecarSet{}, cutOffAfter) }
}

func (o Options) newKeeper() (*keeper, error) {
	authority, err := newAuthority(o.ServiceName, o.SystemNamespace, o.URL)
	if err != nil {
		return nil, err
	}
	desired, err := newConfigurations(endpoint{url: o.URL, service: o.ServiceName, namespace: o.SystemNamespace})
	if err != nil {
		return nil, err
	}
	return &keeper{
		secret:    client.ObjectKey{Namespace: o.SystemNamespace, Name: certificateSecret},
		authority: authority,
		desired:   desired,
		now:       time.Now,
		sets:      &setWatch{now: time.Now},
		first:     make(chan struct{}),
	}, nil
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

// register puts the handlers on the server. The result tells when all that they
// read has been seen.
func (o Options) register(ctx context.Context, mgr *kube.Manager, server *server, meters *meters) (toolscache.InformerSynced, error) {
	index := newSetIndex(o.Logger, meters)
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
		meters:     meters, now: metav1.Now,
	}
	server.Register(podPath, largestAdmission, reviews(pods.answer))
	server.Register(defaultingPath, largestAdmission, reviews(reviewed(&defaulter{decoder: decoder})))
	server.Register(validatingPath, largestAdmission, reviews(reviewed(&validator{
		decoder: decoder, live: mgr.GetAPIReader(), cached: mgr.GetCache(), kubernetes: kubernetes{mgr.GetClient()},
		gates: o.FeatureGates, systemNamespace: o.SystemNamespace,
	})))
	server.Register(conversionPath, largestReview, convert)
	return registration.HasSynced, nil
}

// serveAfter starts the server once a certificate can be served and the event
// handlers have caught up. The manager itself would start it before its caches.
func serveAfter(server *server, certificate <-chan struct{}, synced toolscache.InformerSynced) manager.RunnableFunc {
	return func(ctx context.Context) error {
		if !toolscache.WaitForCacheSync(ctx.Done(), synced) {
			return nil
		}
		select {
		case <-certificate:
			return server.Start(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}
