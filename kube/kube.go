package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube/crd"
	"github.com/outrigger/outrigger/kube/watches"
)

// connectTimeout limits the first request to the API server.
const connectTimeout = 10 * time.Second

// Options are the flags of every role.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file. If Kubeconfig is empty, $KUBECONFIG,
	// ~/.kube/config and the in-cluster configuration are tried in this order.
	Kubeconfig string
	// SystemNamespace is the namespace of revisions, configuration and Leases.
	SystemNamespace string
	// QPS and Burst limit the requests of each client to the API server, for each kind of object. The
	// renewals of a Lease therefore do not wait for the writes of pods.
	QPS   float32
	Burst int
	// MetricsAddress and HealthAddress have the form host:port. The value "0" disables an
	// endpoint.
	MetricsAddress string
	HealthAddress  string
	// ProfileAddress is the address of /debug/pprof, which has no authentication. If
	// ProfileAddress is empty, /debug/pprof is disabled.
	ProfileAddress string
	Logger         logr.Logger
}

// NewScheme returns a scheme with all types that the roles read and write.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, policyv1.AddToScheme, admissionregistrationv1.AddToScheme, apiextensionsv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, v1alpha1.AddToScheme, outriggerv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	return scheme, nil
}

// RESTConfig returns the configuration of the connection to the cluster. RESTConfig fails if no valid
// configuration is found, or if the API server does not respond within connectTimeout.
func (o Options) RESTConfig() (*rest.Config, error) {
	if o.Kubeconfig == "" {
		if err := CheckKubeconfig(); err != nil {
			return nil, err
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find a cluster: %w (select one with --kubeconfig)", err)
	}
	if err := setConnectionTimeouts(config); err != nil {
		return nil, err
	}
	config.Wrap(NewWriteGate)
	config.Wrap(newRetryAfterLimiter)
	config.QPS, config.Burst = o.QPS, o.Burst
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	bounded := rest.CopyConfig(config)
	bounded.Timeout = connectTimeout
	versions, err := discovery.NewDiscoveryClientForConfig(bounded)
	if err != nil {
		return nil, fmt.Errorf("connect to cluster %s: %w", config.Host, err)
	}
	if _, err := versions.ServerVersion(); err != nil {
		return nil, fmt.Errorf("reach cluster %s: %w (check that the API server runs, and that the kubeconfig is of this cluster)", config.Host, err)
	}
	return config, nil
}

// Manager is a controller-runtime manager that records the outages of watches.
type Manager struct {
	manager.Manager
	Watches *watches.Watches
	// Direct bypasses the cache.
	Direct client.Client
	// conversionGuard is nil in a process that does not call GuardConversion.
	conversionGuard *crd.ConversionGuard
}

// GuardConversion adds a ConversionGuard to the manager. The guard keeps SidecarSets readable for all roles
// while the conversion webhook does not respond. Only the webhook role may call GuardConversion, because the
// other roles have no permission to patch the CustomResourceDefinition.
func (m *Manager) GuardConversion() (err error) {
	down := func() time.Duration { return m.Watches.Down(&v1alpha1.SidecarSet{}) }
	m.conversionGuard, err = crd.NewConversionGuard(m.Direct, m.GetConfig(), m.GetHTTPClient(), down, m.GetLogger())
	return err
}

// Start runs the manager until the context ends. If the manager has a ConversionGuard, Start also runs the
// guard.
func (m *Manager) Start(ctx context.Context) error {
	if m.conversionGuard == nil {
		return m.run(ctx)
	}
	m.conversionGuard.Prepare(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var guarding sync.WaitGroup
	guarding.Go(func() { m.conversionGuard.Run(ctx) })
	defer guarding.Wait()
	defer cancel()
	return m.run(ctx)
}

// NewManager returns a Manager for the cluster of RESTConfig. If adjust is not nil, adjust can change the
// options of the manager.
func (o Options) NewManager(adjust func(*manager.Options)) (*Manager, error) {
	config, err := o.RESTConfig()
	if err != nil {
		return nil, err
	}
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	watched := watches.New(scheme, clock.RealClock{})
	metrics.Registry.MustRegister(watched)
	options := manager.Options{
		Scheme:                 scheme,
		Logger:                 o.Logger,
		Metrics:                server.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress: o.HealthAddress,
		PprofBindAddress:       o.ProfileAddress,
		Cache:                  watched.CacheOptions(o.SystemNamespace),
	}
	if adjust != nil {
		adjust(&options)
	}
	mgr, err := manager.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("set up caches and servers: %w", err)
	}
	direct, err := client.New(config, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("set up a client: %w", err)
	}
	return &Manager{Manager: mgr, Watches: watched, Direct: direct}, nil
}

// run runs the manager until ctx ends. If the caches have not synced by then, run returns without waiting for
// the manager, because controller-runtime would wait for the caches forever, in a busy loop.
func (m *Manager) run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- m.Manager.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if !synced(context.WithoutCancel(ctx), m, 100*time.Millisecond) {
		return nil
	}
	return <-ended
}

func synced(ctx context.Context, mgr manager.Manager, timeout time.Duration) bool {
	short, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return mgr.GetCache().WaitForCacheSync(short)
}

// AddChecks adds the health check and the readiness check of a role that reads caches.
func (m *Manager) AddChecks() error {
	cachesSynced := func(r *http.Request) error {
		if !synced(r.Context(), m, time.Second) {
			return errors.New("caches are not synced yet")
		}
		return nil
	}
	if err := cmp.Or(m.AddHealthzCheck("ping", healthz.Ping), m.AddReadyzCheck("caches", cachesSynced)); err != nil {
		return fmt.Errorf("add health checks: %w", err)
	}
	return nil
}
