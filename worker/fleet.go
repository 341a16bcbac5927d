package worker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/outrigger/outrigger/activities"
	"github.com/outrigger/outrigger/activities/fleet"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/workflows"
)

// maxFleetActivities limits the concurrent activities of a member. The limit is high because an activity
// FleetRollout lasts as long as the rollout, and the activities of rollbacks and freezes must not wait for
// the end of rollouts.
const maxFleetActivities = 10_000

// FleetOptions are the options of a member of a fleet.
type FleetOptions struct {
	// Enabled makes the cluster a member. If Enabled is false, the other fields have no effect.
	Enabled bool
	// Temporal is the connection to the fleet. The fields Metrics and Tracer are ignored: the worker uses its
	// own metrics and tracer.
	Temporal temporal.Options
	// ClusterName is the name of the cluster in the fleet. If ClusterName is empty, the name is the uid of
	// the cluster.
	ClusterName   string
	ClusterLabels map[string]string
}

// newConnection returns the state of the connection to the fleet, or nil outside a fleet.
func (o FleetOptions) newConnection() *fleet.Connection {
	if !o.Enabled {
		return nil
	}
	return fleet.NewConnection(ctrlmetrics.Registry)
}

// joinFleet reports the member to the fleet, and runs the workflows and the activities of the fleet, until the
// context ends. joinFleet records outages of the Temporal Service of the fleet in state. During an outage,
// rollouts with a permit continue.
func (h *host) joinFleet(ctx context.Context, mgr *kube.Manager, state *fleet.Connection) error {
	o := h.options.Fleet
	connection := o.Temporal
	connection.Metrics, connection.HostsWorkflows, connection.Tracer = h.options.Temporal.Metrics, true, h.options.Temporal.Tracer
	hosting, err := temporal.NewLazyClient(connection, h.log.WithName("fleet"))
	if err != nil {
		return err
	}
	defer hosting.Close()
	local, err := h.newReader(h.options.Temporal)
	if err != nil {
		return err
	}
	defer local.Close()
	reader, err := h.newReader(connection)
	if err != nil {
		return err
	}
	defer reader.Close()
	uid, err := kube.TaskQueue(ctx, mgr.GetAPIReader(), "")
	if err != nil {
		return err
	}
	member := &fleet.Member{Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Local: local, Fleet: reader, TaskQueue: h.taskQueue, Clock: clock.RealClock{}}
	reporter := &fleet.Reporter{
		Member: member, Cache: mgr.GetClient(), Log: h.log.WithName("fleet"), Connection: state,
		Self: protocol.FleetMember{UID: uid, Name: cmp.Or(o.ClusterName, uid), Labels: o.ClusterLabels},
	}
	// These activities have no access to the cluster, so that a gate of the fleet cannot send a Secret of the
	// cluster.
	gates := &activities.Activities{GateClient: activities.NewGateClient(), Clock: clock.RealClock{}}
	hosted := &host{fleet: true, options: h.options, taskQueue: protocol.FleetMemberTaskQueue(uid), log: h.log.WithName("fleet")}
	hosted.options.Temporal = connection
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return reporter.Run(ctx) })
	group.Go(func() error {
		return hosted.keep(ctx, func(fatal chan<- error) (stop func(), err error) {
			deciding := sdk.New(hosting, protocol.FleetTaskQueue, hosted.fleetOptions(fatal))
			deciding.RegisterWorkflowWithOptions(workflows.Fleet, workflow.RegisterOptions{Name: protocol.FleetWorkflow})
			deciding.RegisterWorkflowWithOptions(workflows.FleetRegistry, workflow.RegisterOptions{Name: protocol.FleetRegistryWorkflow})
			deciding.RegisterActivityWithOptions(member.Plan, activity.RegisterOptions{Name: protocol.FleetPlanActivity})
			deciding.RegisterActivityWithOptions(gates.MeasureFleetGate, activity.RegisterOptions{Name: protocol.FleetGateActivity})
			options := hosted.fleetOptions(fatal)
			options.DisableWorkflowWorker, options.MaxConcurrentActivityExecutionSize = true, maxFleetActivities
			working := sdk.New(hosting, hosted.taskQueue, options)
			working.RegisterActivityWithOptions(member.Rollout, activity.RegisterOptions{Name: protocol.FleetRolloutActivity})
			working.RegisterActivityWithOptions(member.Rollback, activity.RegisterOptions{Name: protocol.FleetRollbackActivity})
			working.RegisterActivityWithOptions(member.Freeze, activity.RegisterOptions{Name: protocol.FleetFreezeActivity})
			if err := deciding.Start(); err != nil {
				return nil, fmt.Errorf("host the rollouts of the fleet: %w", err)
			}
			if err := working.Start(); err != nil {
				deciding.Stop()
				return nil, fmt.Errorf("host the activities of the fleet: %w", err)
			}
			return func() { deciding.Stop(); working.Stop() }, nil
		})
	})
	return group.Wait()
}

// newReader returns a client for queries. If the client cannot decode a payload, the call returns an error.
// The client of a worker would panic, and a panic outside a workflow task would end the process.
func (h *host) newReader(o temporal.Options) (client.Client, error) {
	o.HostsWorkflows = false
	return temporal.NewLazyClient(o, h.log.WithName("fleet"))
}

// fleetOptions returns the options of the workers of a fleet, which are not part of a worker deployment.
func (h *host) fleetOptions(fatal chan<- error) sdk.Options {
	options := h.sdkOptions(h.options.MaxConcurrentSelects, fatal)
	options.DeploymentOptions = sdk.DeploymentOptions{}
	return options
}

// logFleetUnavailable logs a failed connection to the fleet, with the flags that may need a correction. A
// server may quote rejected credentials in an error. Therefore, the log contains the text of the error only
// if the server was unreachable or the cause is unknown.
func (h *host) logFleetUnavailable(err error, delay time.Duration) {
	to := h.options.Fleet.Temporal
	reason, cause := temporal.ExplainFleet(err)
	log := h.log.WithValues("after", delay, "address", to.Address, "namespace", to.Namespace, "reason", reason, "cause", cause)
	if reason == temporal.FleetUnreachable || reason == temporal.FleetOther {
		log = log.WithValues("error", err.Error())
	}
	log.Info("the Temporal of the fleet cannot be used; retrying")
}
