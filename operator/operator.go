package operator

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// name is that of the lease and of the reporter of events.
	name = "outrigger-operator"
	// concurrency is how many sets are worked on at once.
	concurrency = 4
	// A reconcile that fails is tried again after firstRetry, then twice as
	// long each time, up to lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// Options are the flags of the operator.
type Options struct {
	kube.Options
	Temporal temporal.Options
	// TaskQueue is empty for the cluster's own, see kube.TaskQueue.
	TaskQueue string
	// TemporalUI is the URL of the web UI, for links; empty for none.
	TemporalUI string
	// LeaderElect lets one of several operators work at a time.
	LeaderElect bool
}

// Run works until ctx ends. A cluster that cannot be reached at the start is an
// error; a Temporal that cannot is waited for.
func Run(ctx context.Context, o Options) error {
	mgr, err := o.NewManager(func(m *manager.Options) {
		m.LeaderElection = o.LeaderElect
		m.LeaderElectionID = name
		m.LeaderElectionNamespace = o.SystemNamespace
		m.LeaderElectionReleaseOnCancel = true
	})
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", kube.CachesSynced(mgr)); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	queue, err := kube.TaskQueue(ctx, mgr.GetAPIReader(), o.TaskQueue)
	if err != nil {
		return err
	}
	if o.Temporal.Metrics, err = temporal.NewMetricsHandler(ctrlmetrics.Registry); err != nil {
		return err
	}
	client, err := temporal.NewLazyClient(o.Temporal, o.Logger.WithName("temporal"))
	if err != nil {
		return err
	}
	defer client.Close()
	metrics, err := newMetrics(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	rollouts := newRolloutClient(client, o, queue, metrics, clock.RealClock{})
	if err := mgr.Add(rollouts); err != nil {
		return fmt.Errorf("set up the watch over Temporal: %w", err)
	}
	if err := addController(ctx, mgr, rollouts, o.SystemNamespace, metrics); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the operator: %w", err)
	}
	return nil
}

func addController(ctx context.Context, mgr *kube.Manager, rollouts *rolloutClient, namespace string, metrics *metrics) error {
	pods, err := kube.IndexPods(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1.ControllerRevision{}, revisionSetIndex, setOfRevision); err != nil {
		return fmt.Errorf("index revisions by set: %w", err)
	}
	// The controller asks for them too, but not before the process looks ready.
	if _, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.SidecarSet{}); err != nil {
		return fmt.Errorf("watch SidecarSets: %w", err)
	}
	limiter, mismatches := newEnqueueLimiter(clock.RealClock{}), &nameSet{}
	sets := &setLister{Reader: mgr.GetClient(), limiter: limiter, uninjected: newUninjectedCache()}
	orphans := newOrphanCollector(rollouts, mgr.GetClient(), mgr.GetAPIReader(), mismatches)
	if err := mgr.Add(orphans); err != nil {
		return fmt.Errorf("set up the collection of orphaned runs: %w", err)
	}
	if err := (&storageMigrator{client: mgr.Direct}).addTo(mgr); err != nil {
		return err
	}
	c, err := controller.New("sidecarset", mgr, controller.Options{
		MaxConcurrentReconciles: concurrency,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		Reconciler: &reconciler{
			client:     mgr.GetClient(),
			pods:       pods,
			live:       mgr.GetAPIReader(),
			namespace:  namespace,
			rollouts:   rollouts,
			runStates:  newRunStates(),
			limiter:    limiter,
			mismatches: mismatches,
			recorder:   mgr.GetEventRecorder(name),
			metrics:    metrics,
			clock:      clock.RealClock{},
			uninjected: sets.uninjected,
			current:    func() error { return mgr.Watches.Current(&v1alpha1.SidecarSet{}, &corev1.Pod{}) },
		},
	})
	if err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	for _, source := range sources(mgr, rollouts, orphans, sets) {
		if err := c.Watch(source); err != nil {
			return fmt.Errorf("set up the controller's watches: %w", err)
		}
	}
	return nil
}
