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

// maxFleetActivities limits the activities of a member in its fleet. The activity of a rollout lasts as long as
// the rollout. Rollbacks and freezes must not wait for its slot.
const maxFleetActivities = 10_000

// FleetOptions are the options of a member of a fleet.
type FleetOptions struct {
	// Enabled makes the cluster a member. Without it, no field has an effect.
	Enabled bool
	// Temporal is the connection to the fleet. Its metrics and spans are those of the worker.
	Temporal temporal.Options
	// ClusterName is the name of the cluster in the fleet. If it is empty, its uid is its name.
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

// joinFleet hosts the part of the cluster in the rollouts of its fleet until the context ends. While
// the Temporal of the fleet is unavailable, rollouts with a permit continue. joinFleet records the outage
// in state.
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
	// These activities have no access to the cluster, so that a gate of the fleet can send no Secret.
	gates := &activities.Activities{GateClient: activities.NewGateClient(), Clock: clock.RealClock{}}
	hosted := *h
	hosted.fleet = true
	hosted.options.Temporal, hosted.taskQueue, hosted.log = connection, protocol.FleetMemberTaskQueue(uid), h.log.WithName("fleet")
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

// newReader returns a client of a Temporal whose workflows this process hosts. A payload that the client cannot
// decode is an error. In a client of a worker it is a panic, which would end the process here.
func (h *host) newReader(o temporal.Options) (client.Client, error) {
	o.HostsWorkflows = false
	return temporal.NewLazyClient(o, h.log.WithName("fleet"))
}

// fleetOptions are the options of the workers of a fleet, which have no worker deployment.
func (h *host) fleetOptions(fatal chan<- error) sdk.Options {
	options := h.sdkOptions(h.options.MaxConcurrentSelects, fatal)
	options.DeploymentOptions = sdk.DeploymentOptions{}
	return options
}

// logFleetUnavailable names the flags of the connection to the fleet. A server may quote the credentials that it
// rejects, so that the log has the error itself only if the server was not reached, or for an unknown cause.
func (h *host) logFleetUnavailable(err error, delay time.Duration) {
	to := h.options.Fleet.Temporal
	reason, cause := temporal.ExplainFleet(err)
	log := h.log.WithValues("after", delay, "address", to.Address, "namespace", to.Namespace, "reason", reason, "cause", cause)
	if reason == temporal.FleetUnreachable || reason == temporal.FleetOther {
		log = log.WithValues("error", err.Error())
	}
	log.Info("the Temporal of the fleet cannot be used; retrying")
}
