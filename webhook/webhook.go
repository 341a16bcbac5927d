package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/webhook/fallback"
	"github.com/outrigger/outrigger/webhook/pods"
	"github.com/outrigger/outrigger/webhook/registration"
	"github.com/outrigger/outrigger/webhook/review"
	"github.com/outrigger/outrigger/webhook/server"
	"github.com/outrigger/outrigger/webhook/sidecarsets"
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
	// end: nodes see late that its endpoint is gone.
	ShutdownDelay time.Duration
	// FeatureGates change what SidecarSets may do.
	FeatureGates sidecarsets.FeatureGates
	// Tracer makes a span of each edit of a SidecarSet; nil: none.
	Tracer trace.Tracer
}

// Run serves until the context ends. It is ready once caches are filled and the
// certificate is there; then its rules are registered.
func Run(ctx context.Context, options Options) error {
	reconciler, err := registration.New(registration.Options{
		URL: options.URL, ServiceName: options.ServiceName, SystemNamespace: options.SystemNamespace, Log: options.Logger,
	})
	if err != nil {
		return err
	}
	mgr, err := options.newManager(reconciler)
	if err != nil {
		return err
	}
	if err := metrics.Registry.Register(reconciler.Collector()); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	srv, err := server.New(server.Options{
		Log: options.Logger, Certificate: reconciler.Certificate, ClientCAFile: options.ClientCAFile, Registerer: metrics.Registry,
	})
	if err != nil {
		return err
	}
	synced, err := options.addHandlers(ctx, mgr, srv)
	if err != nil {
		return err
	}
	listener, err := server.Listen(ctx, options.Port)
	if err != nil {
		return err
	}
	serving := srv.Ready(synced)
	if err := options.addTo(mgr, reconciler, srv.Runnable(listener), serving); err != nil {
		return errors.Join(err, listener.Close())
	}
	lasting, end := srv.DelayShutdown(ctx, options.ShutdownDelay)
	defer end()
	if err := mgr.Start(lasting); err != nil {
		return fmt.Errorf("run the webhook: %w", err)
	}
	return nil
}

// newManager watches what the reconciler and the handlers read, and no more.
func (o Options) newManager(reconciler *registration.Reconciler) (*kube.Manager, error) {
	var registered error
	mgr, err := o.NewManager(func(options *manager.Options) {
		registered = registration.AddToScheme(options.Scheme)
		for object, by := range options.Cache.ByObject {
			if _, isConfiguration := object.(*corev1.ConfigMap); isConfiguration {
				by.Field = fields.OneTermEqualSelector("metadata.name", v1alpha1.ConfigurationName)
				options.Cache.ByObject[object] = by
			}
		}
		registration.LimitCache(options.Cache.ByObject)
		options.Cache.NewInformer = reconciler.ObserveSets(options.Cache.NewInformer)
	})
	return mgr, cmp.Or(registered, err)
}

// addTo has the manager run the server and the reconciler, and answer for both.
func (o Options) addTo(mgr *kube.Manager, reconciler *registration.Reconciler, admission *manager.Server, serving healthz.Checker) error {
	if err := mgr.Add(admission); err != nil {
		return fmt.Errorf("set up the webhook server: %w", err)
	}
	if err := reconciler.AddTo(mgr, serving); err != nil {
		return err
	}
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

// maxConcurrentValidations bounds what SidecarSets ask of the API server at once.
const maxConcurrentValidations = 16

// addHandlers puts the handlers on the server. The result reports whether all that they
// read has been seen.
func (o Options) addHandlers(ctx context.Context, mgr *kube.Manager, srv *server.Server) (toolscache.InformerSynced, error) {
	reader := func(object client.Object) fallback.Reader {
		return fallback.Reader{Cached: mgr.GetCache(), Live: mgr.GetAPIReader(), Stale: func() error { return mgr.Watches.Current(object) }}
	}
	sets := reader(&v1alpha1.SidecarSet{})
	handler, err := pods.New(pods.Options{
		Log: o.Logger, Sets: sets, Namespaces: reader(&corev1.Namespace{}), Revisions: reader(&appsv1.ControllerRevision{}),
		SystemNamespace: o.SystemNamespace, Registerer: metrics.Registry,
	})
	if err != nil {
		return nil, err
	}
	synced, err := watch(ctx, mgr, handler)
	if err != nil {
		return nil, err
	}
	decoder := admission.NewDecoder(mgr.GetScheme())
	defaulter := &sidecarsets.Defaulter{Decoder: decoder}
	var validation admission.Handler = &sidecarsets.Validator{
		Decoder: decoder, Sets: sets, Live: mgr.GetAPIReader(), Cached: mgr.GetCache(), Client: mgr.GetClient(),
		Gates: o.FeatureGates, SystemNamespace: o.SystemNamespace,
	}
	if o.Tracer != nil {
		validation = &sidecarsets.Traced{Validation: validation, Tracer: o.Tracer}
	}
	srv.Register(registration.PodPath, pods.Size(), server.WhenSynced(synced, review.Answer(handler.Answer)))
	srv.Register(registration.DefaultingPath, sidecarsets.Size(), review.Answer(review.Handle(defaulter)))
	srv.Register(registration.ValidatingPath, sidecarsets.Size(),
		srv.AtMost(maxConcurrentValidations, "validations", review.Answer(review.Handle(validation))))
	srv.Register(registration.ConversionPath, sidecarsets.ConversionSize(), sidecarsets.Convert)
	return synced, nil
}

// watch fills the caches that the handlers read, and the index of pods.
func watch(ctx context.Context, mgr *kube.Manager, handler *pods.Handler) (toolscache.InformerSynced, error) {
	informer, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.SidecarSet{})
	if err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	handling, err := informer.AddEventHandler(handler.SetEventHandler())
	if err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	for _, read := range []client.Object{&corev1.Namespace{}, &corev1.ConfigMap{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, read); err != nil {
			return nil, fmt.Errorf("watch %T: %w", read, err)
		}
	}
	return handling.HasSynced, pods.IndexRevisions(ctx, mgr.GetFieldIndexer())
}
