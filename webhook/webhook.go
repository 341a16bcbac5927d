package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/revisions"
	"github.com/outrigger/outrigger/webhook/actions"
	"github.com/outrigger/outrigger/webhook/fallback"
	"github.com/outrigger/outrigger/webhook/pods"
	"github.com/outrigger/outrigger/webhook/policies"
	"github.com/outrigger/outrigger/webhook/registration"
	"github.com/outrigger/outrigger/webhook/review"
	"github.com/outrigger/outrigger/webhook/server"
	"github.com/outrigger/outrigger/webhook/sidecarsets"
)

// Options are the options of the webhook process.
type Options struct {
	kube.Options
	// Port is the port of the server.
	Port int
	// URL is the address of this process for API servers if the process runs outside the cluster.
	// If URL is empty, API servers use the Service.
	URL string
	// ServiceName is the name of the Service in the system namespace.
	ServiceName string
	// ExternalCertificate is true if another controller, such as cert-manager, writes the Secret
	// with the serving certificate.
	ExternalCertificate bool
	// MatchConditions is true if API servers call the webhook only for pods that a SidecarSet can select.
	MatchConditions bool
	// ClientCAFile contains the CA of the API servers' client certificates. If ClientCAFile is
	// empty, the server answers every client.
	ClientCAFile string
	// ShutdownDelay is the time between SIGTERM and the end of the server. The delay is necessary because
	// nodes continue to route requests to the server for some time.
	ShutdownDelay time.Duration
	// FeatureGates relax the validation of SidecarSets.
	FeatureGates sidecarsets.FeatureGates
	// Tracer starts a span for each edit of a SidecarSet. If Tracer is nil, no span is started.
	Tracer trace.Tracer
	// Fleet is set in a member of a fleet. Until the newest content has a permit, the last good revision, if
	// any, is injected into new pods.
	Fleet bool
}

// Run serves until the context ends. The process is ready once the caches are synced and the server has a
// certificate. The pod webhook is activated once a replica is reachable.
func Run(ctx context.Context, options Options) error {
	reconciler, err := registration.New(registration.Options{
		URL: options.URL, ServiceName: options.ServiceName, SystemNamespace: options.SystemNamespace,
		ExternalCertificate: options.ExternalCertificate, MatchConditions: options.MatchConditions, Log: options.Logger, Registerer: metrics.Registry,
	})
	if err != nil {
		return err
	}
	mgr, err := options.newManager()
	if err != nil {
		return err
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

func (o Options) newManager() (*kube.Manager, error) {
	var added error
	mgr, err := o.NewManager(func(options *manager.Options) {
		added = discoveryv1.AddToScheme(options.Scheme)
		registration.LimitCache(options.Cache.ByObject)
	})
	if err := cmp.Or(added, err); err != nil {
		return nil, err
	}
	return mgr, mgr.GuardConversion()
}

// addTo adds the server, the reconciler and their health checks to a manager.
func (o Options) addTo(mgr *kube.Manager, reconciler *registration.Reconciler, admission *manager.Server, serving healthz.Checker) error {
	if err := mgr.Add(admission); err != nil {
		return fmt.Errorf("set up the webhook server: %w", err)
	}
	if err := reconciler.AddTo(mgr, serving); err != nil {
		return err
	}
	// Readiness does not depend on the API server. Otherwise, an outage of the API server would
	// remove all replicas from the Service at once.
	err := cmp.Or(mgr.AddReadyzCheck("serving", serving), mgr.AddHealthzCheck("ping", healthz.Ping))
	if err == nil && o.URL != "" {
		err = mgr.AddReadyzCheck("registered", reconciler.Registered)
	}
	if err != nil {
		return fmt.Errorf("set up health checks: %w", err)
	}
	return nil
}

// maxConcurrentValidations limits concurrent validations, because each validation calls the API server.
const maxConcurrentValidations = 16

// addHandlers registers the handlers. The returned function reports whether the caches of the handlers are
// synced.
func (o Options) addHandlers(ctx context.Context, mgr *kube.Manager, srv *server.Server) (toolscache.InformerSynced, error) {
	reader := func(object client.Object) fallback.Reader {
		return fallback.Reader{Cached: mgr.GetCache(), Live: mgr.GetAPIReader(), Stale: func() error { return mgr.Watches.Current(object) }}
	}
	sets := reader(&v1alpha1.SidecarSet{})
	recorded := fallback.Revisions{Reader: reader(&appsv1.ControllerRevision{}), SystemNamespace: o.SystemNamespace}
	handler := pods.New(pods.Options{
		Log: o.Logger, Sets: sets, Namespaces: reader(&corev1.Namespace{}), Revisions: recorded,
		Registerer: metrics.Registry, Fleet: o.Fleet,
	})
	synced, err := watch(ctx, mgr, handler)
	if err != nil {
		return nil, err
	}
	decoder := admission.NewDecoder(mgr.GetScheme())
	defaulter := &sidecarsets.Defaulter{Decoder: decoder}
	validator := &sidecarsets.Validator{
		Decoder: decoder, Sets: sets, Revisions: recorded, Cached: mgr.GetCache(), Client: mgr.GetClient(),
		Gates: o.FeatureGates, SystemNamespace: o.SystemNamespace,
	}
	await := func(respond server.Responder) server.Responder { return respond }
	if o.MatchConditions {
		widener := registration.NewWidener(mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{})
		validator.Widen, await = widener.Widen, widener.Await
	}
	var validation admission.Handler = validator
	if o.Tracer != nil {
		validation = &sidecarsets.Traced{Validation: validator, Tracer: o.Tracer}
	}
	srv.Register(registration.PodPath, pods.Size(), server.WhenSynced(synced, review.Answer(handler.Answer)))
	srv.Register(registration.DefaultingPath, sidecarsets.Size(), review.Answer(review.Handle(defaulter)))
	srv.Register(registration.ValidatingPath, sidecarsets.Size(),
		await(srv.AtMost(maxConcurrentValidations, "validations", review.Answer(review.Handle(validation)))))
	srv.Register(registration.ActionPath, actions.Size(), review.Answer(review.Handle(admission.HandlerFunc(actions.SetUser))))
	srv.Register(registration.PolicyPath, policies.Size(), review.Answer(review.Handle(admission.HandlerFunc(policies.Validate))))
	srv.Register(registration.ConversionPath, sidecarsets.ConversionSize(), sidecarsets.Convert)
	return synced, nil
}

// watch starts the caches of the handlers, and feeds the pod handler's index.
func watch(ctx context.Context, mgr *kube.Manager, handler *pods.Handler) (toolscache.InformerSynced, error) {
	if err := revisions.AddIndex(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	var filled []toolscache.InformerSynced
	for _, read := range []client.Object{&v1alpha1.SidecarSet{}, &corev1.Namespace{}, &corev1.ConfigMap{}, &appsv1.ControllerRevision{}} {
		informer, err := mgr.GetCache().GetInformer(ctx, read)
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", read, err)
		}
		synced := informer.HasSynced
		if _, isSet := read.(*v1alpha1.SidecarSet); isSet {
			handling, err := informer.AddEventHandler(handler.SetEventHandler())
			if err != nil {
				return nil, fmt.Errorf("watch SidecarSets: %w", err)
			}
			synced = handling.HasSynced
		}
		filled = append(filled, synced)
	}
	synced, err := watchPolicies(mgr, handler)
	if err != nil {
		return nil, err
	}
	filled = append(filled, synced)
	return func() bool {
		return !slices.ContainsFunc(filled, func(synced toolscache.InformerSynced) bool { return !synced() })
	}, nil
}
