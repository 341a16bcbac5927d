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
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/outrigger/outrigger/activities"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/watches"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/workflows"
)

const (
	// writesPerBatch is the number of pods that one batch writes concurrently. In practice, the
	// rate limiter of the client (--kube-api-qps) limits the writes first.
	writesPerBatch = 32
	// stopTimeout is the time within which running activities must end when the process stops.
	stopTimeout = 10 * time.Second
	// heartbeatInterval limits the delay until an activity observes a cancellation by the run.
	heartbeatInterval = time.Second
	// deadlockTimeout is the time after which the SDK reports a deadlock of a workflow. The
	// default of one second is too short for small machines.
	deadlockTimeout = 5 * time.Second
	// stickyTimeout is the time that a workflow task waits for the worker that caches the run. After this
	// time, any worker can execute the task, because the caching worker may have been killed.
	stickyTimeout = time.Second
)

// Options are the options of the worker.
type Options struct {
	kube.Options
	Temporal temporal.Options
	// TaskQueue is the task queue of the runs. If TaskQueue is empty, the default of kube.TaskQueue applies.
	TaskQueue string
	// MaxConcurrentSelects limits the activities that select pods. MaxConcurrentPatches limits
	// the activities that patch pods. The limits are separate, so that neither kind of activity
	// waits for the other kind.
	MaxConcurrentSelects, MaxConcurrentPatches int
	// MaxUnavailablePods is the cluster-wide limit of pods that upgrades make unavailable at once. 0 means
	// that there is no limit. With a limit, only one worker of the cluster upgrades pods, and all workers
	// must have the same limit.
	MaxUnavailablePods int
	// Versioning must be a result of Versioning.Resolve.
	Versioning Versioning
	// PodUID is the uid of the pod of this process. If the uid is unknown, PodUID is empty. See
	// activities.Activities.LostBatches.
	PodUID string
	// Fleet makes the cluster a member of a fleet.
	Fleet FleetOptions
}

// Run runs the worker until the context ends. Run returns an error if the API server is unreachable at the start.
// If Temporal is unreachable, Run retries.
func Run(ctx context.Context, o Options) error {
	mgr, err := o.NewManager(nil)
	if err != nil {
		return err
	}
	if err := mgr.AddChecks(); err != nil {
		return err
	}
	taskQueue, err := kube.TaskQueue(ctx, mgr.GetAPIReader(), o.TaskQueue)
	if err != nil {
		return err
	}
	pods, err := watches.IndexPods(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	hosted := &activities.Activities{
		Cache: mgr.GetClient(), Index: pods, Live: mgr.GetAPIReader(),
		Writer: mgr.GetClient(), Status: mgr.GetClient().Status(), Resize: mgr.GetClient().SubResource("resize"), Evict: mgr.GetClient().SubResource("eviction"), Events: mgr.GetEventRecorder("outrigger-worker"),
		SystemNamespace: o.SystemNamespace, PodUID: o.PodUID, Changes: &activities.Changes{}, Deleted: activities.NewDeletedSets(), Clock: clock.RealClock{}, Writers: writesPerBatch,
		Metrics: activities.NewMetrics(ctrlmetrics.Registry), Tracer: o.Temporal.SpanTracer(),
		GateClient: activities.NewGateClient(), Fleet: o.Fleet.newConnection(),
		Current: func() error { return mgr.Watches.Current(&corev1.Pod{}) },
	}
	h := &host{options: o, taskQueue: taskQueue, log: o.Logger, activities: hosted}
	if err := h.electLimiter(mgr, hosted); err != nil {
		return err
	}
	if err := hosted.Watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	o.Temporal.Metrics = temporal.NewMetricsHandler(ctrlmetrics.Registry)
	o.Temporal.HostsWorkflows = true
	h.options.Temporal = o.Temporal
	if h.client, err = temporal.NewLazyClient(o.Temporal, o.Logger.WithName("temporal")); err != nil {
		return err
	}
	defer h.client.Close()
	lost := lostBatches{read: hosted.LostBatches, log: o.Logger, known: make(chan struct{}), end: func(ctx context.Context, task []byte, cause error) error {
		return h.client.CompleteActivity(ctx, task, nil, cause)
	}}
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(func() { lost.release(ctx) })
	ending.Go(func() {
		if err := hosted.CleanUpLeases(ctx); err != nil {
			o.Logger.Info("cannot clean up the Leases of rollouts; the next start retries", "cause", err.Error())
		}
	})
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return lost.before(ctx, h.run) })); err != nil {
		return fmt.Errorf("add the Temporal worker: %w", err)
	}
	if o.Fleet.Enabled {
		if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return h.joinFleet(ctx, mgr, hosted.Fleet) })); err != nil {
			return fmt.Errorf("add the member of the fleet: %w", err)
		}
	}
	if err := mgr.Add(manager.RunnableFunc(hosted.CleanUp)); err != nil {
		return fmt.Errorf("add the clean-up after deleted SidecarSets: %w", err)
	}
	return mgr.Start(ctx)
}

// host runs the Temporal workers of this process.
type host struct {
	client     client.Client
	options    Options
	taskQueue  string
	activities rolloutActivities
	log        logr.Logger
	// fleet is set for the workers of a fleet. Logs then name the flags of the connection to the fleet.
	fleet bool
	// lead is nil if every worker upgrades pods. Otherwise, lead runs until the context ends, and calls
	// upgrade whenever this worker is the leader.
	lead func(ctx context.Context, upgrade func(context.Context) error) error
	// writes counts the running activities that patch or evict pods.
	writes sync.WaitGroup
}

// rolloutActivities contains the activities of the workflows Rollout and Eviction. The implementation is
// *activities.Activities, or a stub in tests.
type rolloutActivities interface {
	NextBatch(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error)
	UpgradeBatch(context.Context, protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error)
	AwaitMigration(context.Context, protocol.AwaitMigrationInput) (protocol.AwaitMigrationResult, error)
	ResetBatch(context.Context, protocol.ResetBatchInput) (protocol.ResetBatchResult, error)
	WriteUpgradableConditions(context.Context, protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error)
	MeasureGate(context.Context, protocol.MeasureGateInput) (protocol.Measurement, error)
	PlanEvictions(context.Context, protocol.PlanEvictionsInput) (protocol.EvictionPlan, error)
	EvictPods(context.Context, protocol.EvictPodsInput) (protocol.EvictPodsResult, error)
}

// run runs the Temporal workers until the context ends. With a cluster-wide limit, only the leader polls the task
// queue of the activities that patch pods.
func (h *host) run(ctx context.Context) error {
	if h.lead == nil {
		return h.keep(ctx, h.start)
	}
	hosting, ctx := errgroup.WithContext(ctx)
	writing, end := context.WithCancel(context.WithoutCancel(ctx))
	hosting.Go(func() error {
		defer end() // the patching worker stops after the selecting worker, as in start
		return h.keep(ctx, h.startSelecting)
	})
	hosting.Go(func() error {
		return h.lead(writing, h.upgrade)
	})
	return hosting.Wait()
}

// upgrade runs the activities that patch and evict pods until the context ends. The SDK waits at most stopTimeout
// for running activities, but upgrade waits until no activity runs, because the next leader begins after upgrade
// has returned. If the process exits earlier, the next leader waits until the Lease expires.
func (h *host) upgrade(leading context.Context) error {
	defer h.writes.Wait()
	return h.keep(leading, h.startPatching)
}

// keep starts workers with start, and stops the workers when the context ends. If start fails, keep retries with
// backoff. If a worker stops because of an error, keep restarts all workers.
func (h *host) keep(ctx context.Context, start func(fatal chan<- error) (stop func(), err error)) error {
	initial := wait.Backoff{Duration: time.Second, Factor: 2, Cap: 10 * time.Second, Steps: 5}
	backoff := initial
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
		backoff = initial
		h.log.Info("hosting rollouts", "taskQueue", h.taskQueue, "deployment", h.options.Versioning.DeploymentName, "build", h.options.Versioning.BuildID)
		select {
		case <-ctx.Done():
		case err := <-fatal:
			h.log.Error(err, "Temporal worker stopped; restarting it")
		}
		stop()
	}
	return nil
}

func (h *host) logUnavailable(err error, delay time.Duration) {
	if h.fleet {
		h.logFleetUnavailable(err, delay)
		return
	}
	if cause, remedy := temporal.ExplainCall(err); cause != "" {
		h.log.Info("Temporal cannot be used; retrying", "after", delay, "address", h.options.Temporal.Address, "cause", cause, "remedy", remedy)
		return
	}
	h.log.Info("Temporal does not respond; retrying", "after", delay, "cause", err.Error())
}

// start starts a worker for each task queue. stop stops the worker that runs the workflows before the worker that
// drains batches. Otherwise, the server could send the workflow task that follows a drained batch to a poll that
// is being closed, and would reschedule this task only after ten seconds.
func (h *host) start(fatal chan<- error) (stop func(), err error) {
	stopSelecting, err := h.startSelecting(fatal)
	if err != nil {
		return nil, err
	}
	stopPatching, err := h.startPatching(fatal)
	if err != nil {
		stopSelecting()
		return nil, err
	}
	return func() {
		stopSelecting()
		stopPatching()
	}, nil
}

// startSelecting starts the worker that runs the workflows and the activities that do not write pods.
func (h *host) startSelecting(fatal chan<- error) (stop func(), err error) {
	selecting := sdk.New(h.client, h.taskQueue, h.sdkOptions(h.options.MaxConcurrentSelects, fatal))
	selecting.RegisterWorkflowWithOptions(workflows.Rollout, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	selecting.RegisterWorkflowWithOptions(workflows.Eviction, workflow.RegisterOptions{Name: protocol.EvictionWorkflow})
	for name, function := range map[string]any{
		protocol.PlanEvictionsActivity:  h.activities.PlanEvictions,
		protocol.NextBatchActivity:      h.activities.NextBatch,
		protocol.AwaitMigrationActivity: h.activities.AwaitMigration,
		protocol.MeasureGateActivity:    h.activities.MeasureGate,
	} {
		selecting.RegisterActivityWithOptions(function, activity.RegisterOptions{Name: name})
	}
	return selecting.Stop, selecting.Start()
}

// startPatching starts the worker that runs the activities that patch or evict pods.
func (h *host) startPatching(fatal chan<- error) (stop func(), err error) {
	options := h.sdkOptions(h.options.MaxConcurrentPatches, fatal)
	// The task queue of writes has no workflow tasks.
	options.DisableWorkflowWorker = true
	patching := sdk.New(h.client, protocol.WriteTaskQueue(h.taskQueue), options)
	for name, function := range map[string]any{
		protocol.UpgradeBatchActivity:              counted(&h.writes, h.activities.UpgradeBatch),
		protocol.ResetBatchActivity:                counted(&h.writes, h.activities.ResetBatch),
		protocol.EvictPodsActivity:                 counted(&h.writes, h.activities.EvictPods),
		protocol.WriteUpgradableConditionsActivity: counted(&h.writes, h.activities.WriteUpgradableConditions),
	} {
		patching.RegisterActivityWithOptions(function, activity.RegisterOptions{Name: name})
	}
	return patching.Stop, patching.Start()
}

// counted returns an activity that counts its running calls in calls.
func counted[input, output any](calls *sync.WaitGroup, activity func(context.Context, input) (output, error)) func(context.Context, input) (output, error) {
	return func(ctx context.Context, in input) (output, error) {
		calls.Add(1)
		defer calls.Done()
		return activity(ctx, in)
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
		Interceptors:                       workflows.Interceptors(),
		OnFatalError: func(err error) {
			select {
			case fatal <- err:
			default:
			}
		},
	}
}
