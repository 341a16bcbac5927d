package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// connectTimeout bounds the first contact with the API server.
const connectTimeout = 10 * time.Second

// Options are the flags that every role has.
type Options struct {
	// Kubeconfig is a file; empty means in-cluster, then $KUBECONFIG and ~/.kube/config.
	Kubeconfig string
	// SystemNamespace holds revisions, configuration and leases.
	SystemNamespace string
	// QPS and Burst limit this process's requests to the API server, a second.
	QPS   float32
	Burst int
	// MetricsAddress and HealthAddress are host:port; "0" turns them off.
	MetricsAddress string
	HealthAddress  string
	// ProfileAddress serves /debug/pprof to whoever reaches it; empty: nobody.
	ProfileAddress string
	Logger         logr.Logger
}

// NewScheme returns a scheme with the types that the processes read and write.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	return scheme, nil
}

// RESTConfig finds the cluster, and fails if its API server does not answer within
// connectTimeout.
func (o Options) RESTConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find a cluster: %w (name one with --kubeconfig)", err)
	}
	if err := setConnectionTimeouts(config); err != nil {
		return nil, err
	}
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
		return nil, fmt.Errorf("reach cluster %s: %w (is it up, and is the kubeconfig of this cluster?)", config.Host, err)
	}
	return config, nil
}

// Manager is a controller-runtime manager that records how stale its caches are.
type Manager struct {
	manager.Manager
	Watches *Watches
	// Direct reads past the cache.
	Direct     client.Client
	conversion *conversionGuard
}

// Start runs the process until the context ends. Its cache of SidecarSets fills also
// while their conversion webhook does not answer.
func (m *Manager) Start(ctx context.Context) error {
	m.conversion.prepare(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { m.conversion.run(ctx) })
	defer watching.Wait()
	defer cancel()
	return m.run(ctx)
}

// NewManager builds a Manager with the caches that every role needs. adjust may change
// the options before they take effect; nil changes nothing.
func (o Options) NewManager(adjust func(*manager.Options)) (*Manager, error) {
	config, err := o.RESTConfig()
	if err != nil {
		return nil, err
	}
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	watches := NewWatches(scheme, clock.RealClock{})
	if err := metrics.Registry.Register(watches); err != nil {
		return nil, fmt.Errorf("register the metrics of watches: %w", err)
	}
	options := manager.Options{
		Scheme:                 scheme,
		Logger:                 o.Logger,
		Metrics:                server.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress: o.HealthAddress,
		PprofBindAddress:       o.ProfileAddress,
		Cache:                  o.cacheOptions(watches),
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
	readSets, err := newReadSets(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	down := func() time.Duration { return watches.Down(&v1alpha1.SidecarSet{}) }
	return &Manager{Manager: mgr, Watches: watches, Direct: direct, conversion: &conversionGuard{
		client: direct, readSets: readSets, down: down, clock: clock.RealClock{}, log: o.Logger,
	}}, nil
}

// cacheOptions have every type stripped of what nobody reads.
func (o Options) cacheOptions(watches *Watches) cache.Options {
	inSystemNamespace := map[string]cache.Config{o.SystemNamespace: {}}
	return cache.Options{
		NewInformer:      watches.NewInformer,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:       {Transform: NewPodTransform()},
			&corev1.Namespace{}: {Transform: namespaceTransform},
			// Revisions and configuration are read from one namespace alone.
			&appsv1.ControllerRevision{}: {Namespaces: inSystemNamespace},
			&corev1.ConfigMap{}:          {Namespaces: inSystemNamespace},
			&corev1.Secret{}:             {Namespaces: inSystemNamespace},
		},
	}
}

// run returns when ctx ends. controller-runtime would wait for ever, and busily, for
// caches that have not synced by then.
func (m *Manager) run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- m.Manager.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if !m.synced(context.WithoutCancel(ctx)) {
		return nil
	}
	return <-ended
}

func (m *Manager) synced(ctx context.Context) bool {
	short, done := context.WithTimeout(ctx, 100*time.Millisecond)
	defer done()
	return m.GetCache().WaitForCacheSync(short)
}

// CachesSynced is the readiness check of a process that decides from caches.
func CachesSynced(mgr manager.Manager) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not synced yet")
		}
		return nil
	}
}
