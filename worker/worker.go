package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/outrigger/outrigger/activities"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/workflows"
)

const (
	// writesPerBatch is how many pods one batch writes at a time; the client's rate
	// limit is the bound that counts.
	writesPerBatch = 32
	// stopTimeout lets running activities end before the process does.
	stopTimeout = 10 * time.Second
	// heartbeatInterval bounds how soon an activity learns that its run has cancelled
	// it.
	heartbeatInterval = time.Second
	// deadlockTimeout suits small machines; the SDK's second is too short there.
	deadlockTimeout = 5 * time.Second
	// stickyTimeout is how long a workflow task waits for the worker that has the run in
	// its cache, and may have been killed.
	stickyTimeout = time.Second
)

// Options of the worker process.
type Options struct {
	kube.Options
	Temporal temporal.Options
	// TaskQueue is empty for the cluster's own, see kube.TaskQueue.
	TaskQueue string
	// MaxConcurrentLooks bounds the activities that select pods, and
	// MaxConcurrentWrites those that write them, so that neither waits for the other.
	MaxConcurrentLooks, MaxConcurrentWrites int
	// MaxUnavailablePods bounds the pods of all sets that upgrades make unavailable
	// at once; 0: nothing does. One worker of the cluster upgrades pods then, and all
	// must have the same bound.
	MaxUnavailablePods int
	// Versioning is resolved.
	Versioning Versioning
	// PodUID is that of the pod that the process runs in; empty: unknown. See
	// activities.Activities.LostBatches.
	PodUID string
}

// Run hosts rollouts until the context ends. It fails only when the cluster
// cannot be reached at the start; Temporal is waited for.
func Run(ctx context.Context, o Options) error {
	mgr, err := o.NewManager(nil)
	if err != nil {
		return err
	}
	taskQueue, err := kube.TaskQueue(ctx, mgr.GetAPIReader(), o.TaskQueue)
	if err != nil {
		return err
	}
	pods, err := kube.IndexPods(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	metrics, err := activities.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	hosted := &activities.Activities{
		Cache: mgr.GetClient(), Index: pods, Live: mgr.GetAPIReader(),
		Writer: mgr.GetClient(), Status: mgr.GetClient().Status(), Events: mgr.GetEventRecorder("outrigger-worker"),
		SystemNamespace: o.SystemNamespace, PodUID: o.PodUID, Changes: activities.NewChanges(), Clock: clock.RealClock{}, Writers: writesPerBatch, Metrics: metrics,
		Tracer:  o.Temporal.SpanTracer(),
		Current: func() error { return mgr.Watches.Current(&corev1.Pod{}) },
	}
	h := &host{options: o, taskQueue: taskQueue, log: o.Logger, activities: hosted}
	if err := h.boundFleet(mgr, hosted); err != nil {
		return err
	}
	if err := hosted.Watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if o.Temporal.Metrics, err = temporal.NewMetricsHandler(ctrlmetrics.Registry); err != nil {
		return err
	}
	o.Temporal.HostsWorkflows = true
	h.options.Temporal = o.Temporal
	if h.client, err = temporal.NewLazyClient(o.Temporal, o.Logger.WithName("temporal")); err != nil {
		return err
	}
	defer h.client.Close()
	lost := lostBatches{read: hosted.LostBatches, end: h.endTask, log: o.Logger, known: make(chan struct{})}
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(func() { lost.giveAway(ctx) })
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return lost.before(ctx, h.run) })); err != nil {
		return fmt.Errorf("add the Temporal worker: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", kube.CachesSynced(mgr)); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	return mgr.Start(ctx)
}

// endTask fails a task of whoever has it.
func (h *host) endTask(ctx context.Context, task []byte, cause error) error {
	return h.client.CompleteActivity(ctx, task, nil, cause)
}

// host runs the Temporal workers of this process.
type host struct {
	client     client.Client
	options    Options
	taskQueue  string
	activities rolloutActivities
	log        logr.Logger
	// lead is nil when every worker upgrades pods. Else it has the one that leads do
	// so, until the context ends.
	lead func(ctx context.Context, upgrade func(context.Context) error) error
}

// rolloutActivities is what the workflow calls: *activities.Activities, in tests stubs.
type rolloutActivities interface {
	NextBatch(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error)
	UpgradeBatch(context.Context, protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error)
	AwaitMigration(context.Context, protocol.AwaitMigrationInput) (protocol.AwaitMigrationResult, error)
	ResetBatch(context.Context, protocol.ResetBatchInput) (protocol.ResetBatchResult, error)
	WriteUpgradableConditions(context.Context, protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error)
}

// run hosts rollouts until the context ends. Of several workers that must not upgrade
// pods side by side, only the one that leads takes the tasks that write.
func (h *host) run(ctx context.Context) error {
	if h.lead == nil {
		return h.keep(ctx, h.start)
	}
	hosting, ctx := errgroup.WithContext(ctx)
	writing, end := context.WithCancel(context.WithoutCancel(ctx))
	hosting.Go(func() error {
		defer end() // in the order that start has, too
		return h.keep(ctx, h.startLooks)
	})
	hosting.Go(func() error {
		return h.lead(writing, func(leading context.Context) error { return h.keep(leading, h.startWrites) })
	})
	return hosting.Wait()
}

// keep starts workers, with a backoff while Temporal is unreachable, and again when
// they stop by themselves.
func (h *host) keep(ctx context.Context, start func(fatal chan<- error) (stop func(), err error)) error {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Cap: 10 * time.Second, Steps: 5}
	for ctx.Err() == nil {
		fatal := make(chan error, 1)
		stop, err := start(fatal)
		if err != nil {
			delay := backoff.Step()
			h.logUnavailable(err, delay)
			select {
			case <-ctx.Done():
			case <-time.After(delay):
			}
			continue
		}
		h.log.Info("hosting rollouts", "taskQueue", h.taskQueue, "deployment", h.options.Versioning.DeploymentName, "build", h.options.Versioning.BuildID)
		select {
		case <-ctx.Done():
		case err := <-fatal:
			h.log.Error(err, "Temporal worker stopped; starting it again")
		}
		stop()
	}
	return nil
}

func (h *host) logUnavailable(err error, delay time.Duration) {
	if cause, remedy := temporal.Explain(err); cause != "" {
		h.log.Info("Temporal cannot be used; trying again", "after", delay, "address", h.options.Temporal.Address, "cause", cause, "remedy", remedy)
		return
	}
	h.log.Info("Temporal does not answer; trying again", "after", delay, "cause", err.Error())
}

// start starts a worker for each task queue. stop ends first the one that runs the
// workflow: a batch that is handed over makes a workflow task, which the server could
// give to a poll that is about to be cut; it would be missed only after ten seconds.
func (h *host) start(fatal chan<- error) (stop func(), err error) {
	stopLooks, err := h.startLooks(fatal)
	if err != nil {
		return nil, err
	}
	stopWrites, err := h.startWrites(fatal)
	if err != nil {
		stopLooks()
		return nil, err
	}
	return func() {
		stopLooks()
		stopWrites()
	}, nil
}

// startLooks starts the worker that runs the workflow and selects pods.
func (h *host) startLooks(fatal chan<- error) (stop func(), err error) {
	looks := sdk.New(h.client, h.taskQueue, h.sdkOptions(h.options.MaxConcurrentLooks, fatal))
	looks.RegisterWorkflowWithOptions(workflows.Rollout, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	for name, function := range map[string]any{
		protocol.NextBatchActivity:      h.activities.NextBatch,
		protocol.AwaitMigrationActivity: h.activities.AwaitMigration,
	} {
		looks.RegisterActivityWithOptions(function, activity.RegisterOptions{Name: name})
	}
	// Runs of a release without a queue for writes have them queued here.
	h.registerWrites(looks)
	return looks.Stop, looks.Start()
}

// startWrites starts the worker that writes pods.
func (h *host) startWrites(fatal chan<- error) (stop func(), err error) {
	options := h.sdkOptions(h.options.MaxConcurrentWrites, fatal)
	// No workflow task comes to this queue.
	options.DisableWorkflowWorker = true
	writes := sdk.New(h.client, protocol.WriteTaskQueue(h.taskQueue), options)
	h.registerWrites(writes)
	return writes.Stop, writes.Start()
}

func (h *host) registerWrites(registry sdk.Worker) {
	for name, function := range map[string]any{
		protocol.UpgradeBatchActivity:              h.activities.UpgradeBatch,
		protocol.ResetBatchActivity:                h.activities.ResetBatch,
		protocol.WriteUpgradableConditionsActivity: h.activities.WriteUpgradableConditions,
	} {
		registry.RegisterActivityWithOptions(function, activity.RegisterOptions{Name: name})
	}
}

func (h *host) sdkOptions(slots int, fatal chan<- error) sdk.Options {
	return sdk.Options{
		MaxConcurrentActivityExecutionSize: slots,
		WorkerStopTimeout:                  stopTimeout,
		MaxHeartbeatThrottleInterval:       heartbeatInterval,
		DeadlockDetectionTimeout:           deadlockTimeout,
		StickyScheduleToStartTimeout:       stickyTimeout,
		DeploymentOptions:                  h.options.Versioning.options(),
		OnFatalError: func(err error) {
			select {
			case fatal <- err:
			default:
			}
		},
	}
}
