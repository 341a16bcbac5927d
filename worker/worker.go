// Package worker is the process that hosts the Rollout workflow and its
// activities.
package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/outrigger/outrigger/activities"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/workflows"
)

const (
	// writers is how many pods one batch writes at a time; the client's rate
	// limit is the bound that counts.
	writers = 32
	// stopTimeout lets the batch in hand end before the process does.
	stopTimeout = 10 * time.Second
	// heartbeatInterval bounds how soon an activity hears that the run wants
	// it to end.
	heartbeatInterval = time.Second
	// deadlockTimeout suits small machines; the SDK's second is too short there.
	deadlockTimeout = 5 * time.Second
)

// Options of the worker process.
type Options struct {
	kube.Options
	Temporal temporal.Options
	// TaskQueue is the UID of namespace kube-system unless set.
	TaskQueue string
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
	changes := activities.NewChanges()
	if err := changes.Watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	engine, err := temporal.NewLazyClient(o.Temporal, o.Logger.WithName("temporal"))
	if err != nil {
		return err
	}
	defer engine.Close()
	h := &host{
		engine: engine, taskQueue: taskQueue, log: o.Logger,
		activities: &activities.Activities{
			Cache: mgr.GetClient(), Index: pods, Live: mgr.GetAPIReader(),
			Pods: mgr.GetClient(), Status: mgr.GetClient().Status(), Events: mgr.GetEventRecorder("outrigger-worker"),
			Changes: changes, Clock: clock.RealClock{}, Writers: writers,
		},
	}
	if err := mgr.Add(manager.RunnableFunc(h.run)); err != nil {
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

// host keeps a Temporal worker running.
type host struct {
	engine     client.Client
	taskQueue  string
	activities *activities.Activities
	log        logr.Logger
}

// run starts the worker, again and again while Temporal is away, and again
// when it stops by itself.
func (h *host) run(ctx context.Context) error {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Cap: 10 * time.Second, Steps: 5}
	for ctx.Err() == nil {
		fatal := make(chan error, 1)
		w := h.worker(fatal)
		if err := w.Start(); err != nil {
			pause := backoff.Step()
			h.log.Info("Temporal does not answer; trying again", "after", pause, "cause", err.Error())
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			continue
		}
		h.log.Info("hosting rollouts", "taskQueue", h.taskQueue)
		select {
		case <-ctx.Done():
		case err := <-fatal:
			h.log.Error(err, "Temporal worker stopped; starting it again")
		}
		w.Stop()
	}
	return nil
}

func (h *host) worker(fatal chan<- error) sdk.Worker {
	w := sdk.New(h.engine, h.taskQueue, sdk.Options{
		WorkerStopTimeout:            stopTimeout,
		MaxHeartbeatThrottleInterval: heartbeatInterval,
		DeadlockDetectionTimeout:     deadlockTimeout,
		OnFatalError: func(err error) {
			select {
			case fatal <- err:
			default:
			}
		},
	})
	w.RegisterWorkflowWithOptions(workflows.Rollout, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	for name, does := range map[string]any{
		protocol.NextBatchActivity:      h.activities.NextBatch,
		protocol.UpgradeBatchActivity:   h.activities.UpgradeBatch,
		protocol.AwaitMigrationActivity: h.activities.AwaitMigration,
		protocol.ResetBatchActivity:     h.activities.ResetBatch,
		protocol.MarkPodsActivity:       h.activities.MarkPods,
	} {
		w.RegisterActivityWithOptions(does, activity.RegisterOptions{Name: name})
	}
	return w
}
