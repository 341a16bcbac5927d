package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/revisions"
	"github.com/outrigger/outrigger/kube/watches"
	"github.com/outrigger/outrigger/operator/actions"
	"github.com/outrigger/outrigger/operator/policies"
	"github.com/outrigger/outrigger/operator/runs"
	"github.com/outrigger/outrigger/operator/storage"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// name is the name of the Lease, of the event recorder, and of the Temporal client.
	name = "outrigger-operator"
	// concurrency is the number of SidecarSets that are reconciled at once.
	concurrency = 4
	// renewInterval is the time between two renewals of the Lease by the leader.
	renewInterval = time.Second
)

// Options are the flags of the operator.
type Options struct {
	kube.Options
	Temporal temporal.Options
	// TaskQueue is the task queue of the runs. If TaskQueue is empty, the task queue of the cluster is
	// used, see kube.TaskQueue.
	TaskQueue string
	// TemporalUI is the URL of the web UI, for links. If TemporalUI is empty, there are no links.
	TemporalUI string
	// If LeaderElect is set, only one of several operators reconciles at a time.
	LeaderElect bool
	// WorkerCheckInterval is the time between two checks of the workers while the workers respond
	// (SPEC §8.10).
	WorkerCheckInterval time.Duration
	// Fleet is set in a member of a fleet, whose rollouts need permits.
	Fleet bool
}

// Run runs the operator until ctx ends. Run returns an error if the operator cannot reach the cluster at
// the start. While Temporal is unreachable, the operator continues and tries to connect.
func Run(ctx context.Context, o Options) error {
	mgr, err := o.NewManager(func(m *manager.Options) {
		m.LeaderElection = o.LeaderElect
		m.LeaderElectionID = name
		m.LeaderElectionNamespace = o.SystemNamespace
		m.LeaderElectionReleaseOnCancel = true
		m.RetryPeriod = new(renewInterval)
	})
	if err != nil {
		return err
	}
	if err := mgr.AddChecks(); err != nil {
		return err
	}
	queue, err := kube.TaskQueue(ctx, mgr.GetAPIReader(), o.TaskQueue)
	if err != nil {
		return err
	}
	o.Temporal.Metrics = temporal.NewMetricsHandler(ctrlmetrics.Registry)
	client, err := temporal.NewLazyClient(o.Temporal, o.Logger.WithName("temporal"))
	if err != nil {
		return err
	}
	defer client.Close()
	metrics := newMetrics(ctrlmetrics.Registry)
	temporal := runs.NewClient(client, runs.Options{
		Temporal: o.Temporal, Name: name, TaskQueue: queue, UI: o.TemporalUI, Logger: o.Logger.WithName("rollouts"), Clock: clock.RealClock{},
	}, metrics.runs)
	if err := mgr.Add(temporal); err != nil {
		return fmt.Errorf("set up the probes of Temporal: %w", err)
	}
	if o.LeaderElect {
		if err := mgr.Add(newHealth(mgr.Direct, temporal, o)); err != nil {
			return fmt.Errorf("set up the report in the Lease: %w", err)
		}
	}
	if err := addController(ctx, mgr, temporal, o, metrics); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the operator: %w", err)
	}
	return nil
}

// indexed adds the indexes of pods and revisions, and the informer of SidecarSets, so that the process is
// ready only after this informer has synced. Without GetInformer, the controller would start the informer
// after the process is ready.
func indexed(ctx context.Context, mgr *kube.Manager) (*watches.Pods, error) {
	pods, err := watches.IndexPods(ctx, mgr.GetCache())
	if err != nil {
		return nil, err
	}
	if err := revisions.AddIndex(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.SidecarSet{}); err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	return pods, nil
}

func addController(ctx context.Context, mgr *kube.Manager, temporal *runs.Client, o Options, metrics *metrics) error {
	namespace := o.SystemNamespace
	pods, err := indexed(ctx, mgr)
	if err != nil {
		return err
	}
	clock, cache, live := clock.RealClock{}, mgr.GetClient(), mgr.GetAPIReader()
	freezes := &freezes{Reader: cache}
	sets := &setLister{Reader: cache, namespace: namespace, limiter: newEnqueueLimiter(clock), uninjected: newUninjectedCache(), reported: &reports{}}
	webhook := &podWebhook{live: live, namespace: namespace, clock: clock}
	probe := newWebhookProbe(webhook)
	calls, orphans, changes := newCalls(), runs.NewOrphans(temporal, cache, live), newRunChanges()
	if err := changes.watch(ctx, mgr, namespace); err != nil {
		return err
	}
	evicting := policies.NewEvicting(probe.changes)
	definition := &definitionCheck{reader: mgr.Direct, interval: definitionInterval, keptInterval: keptInterval}
	if err := cmp.Or(mgr.Add(orphans), mgr.Add(definition), mgr.Add(probe), (&storage.Migrator{Client: mgr.Direct, Clock: clock}).AddTo(mgr), policies.AddTo(mgr, mgr.Direct, temporal, metrics.evictions, evicting),
		(&actions.Controller{Client: mgr.Direct, Runs: temporal, Changed: changes.add, Clock: clock}).AddTo(mgr)); err != nil {
		return fmt.Errorf("set up the checks of runs, of the definition and of the webhook: %w", err)
	}
	status, err := newStatusWriter(mgr, metrics, sets.reported)
	if err != nil {
		return err
	}
	c, err := controller.New("sidecarset", mgr, controller.Options{
		MaxConcurrentReconciles: concurrency,
		RateLimiter:             kube.RateLimiter(),
		Reconciler: &reconciler{
			client:  cache,
			pods:    pods,
			limiter: sets.limiter,
			clock:   clock,
			current: func() error {
				return errors.Join(definition.losesFields(), mgr.Watches.Current(&v1alpha1.SidecarSet{}, &corev1.Pod{}))
			},
			steps: steps(
				&revisionStep{client: cache, live: live, namespace: namespace, status: status, recorder: mgr.GetEventRecorder(name)},
				&populationStep{client: cache, freezes: freezes, fleet: o.Fleet},
				&injectionStep{client: cache, pods: pods, cache: sets.uninjected, uninjected: metrics.withoutSidecar,
					webhook: webhook, probe: probe},
				&runStep{client: temporal, calls: calls, states: &runStates{}, mismatched: orphans.TakeMismatch, changed: changes.take, clock: clock},
				&statusStep{statusWriter: status, temporal: temporal, recorder: mgr.GetEventRecorder(name), metrics: metrics.rollouts, evicts: evicting.Evicts},
			),
		},
	})
	if err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	for _, source := range sources(mgr, temporal, calls, orphans, changes, probe, sets) {
		if err := c.Watch(source); err != nil {
			return fmt.Errorf("set up the controller's watches: %w", err)
		}
	}
	return freezes.watch(ctx, mgr, c, sets)
}
