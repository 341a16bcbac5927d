package workflows

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/fleet"
)

// FleetRegistry stores the policies, the members and the freeze of a fleet (SPEC §12.1, §12.7). Members announce
// themselves by the signal announce. Updates change policies, members and the freeze. An activity notifies each
// member of a freeze, and of the end of the freeze.
func FleetRegistry(ctx workflow.Context, registry protocol.FleetRegistry) error {
	r := &registryRun{registry: registry, telling: map[string]*activeMember{}}
	announced := workflow.GetSignalChannel(ctx, protocol.AnnounceSignal)
	if err := r.handleRequests(ctx); err != nil {
		return err
	}
	for {
		for _, member := range drain[protocol.FleetMember](announced) {
			fleet.Announce(&r.registry, member)
		}
		if hasLongHistory(ctx) {
			return workflow.NewContinueAsNewError(ctx, protocol.FleetRegistryWorkflow, r.registry)
		}
		r.changed = false
		for _, uid := range fleet.Unaware(&r.registry) {
			r.tell(ctx, uid)
		}
		if err := r.await(ctx, func() bool { return r.changed || announced.Len() > 0 || hasLongHistory(ctx) }); err != nil {
			return fmt.Errorf("wait for members: %w", err)
		}
	}
}

// registryRun is the state of one run of FleetRegistry.
type registryRun struct {
	registry protocol.FleetRegistry
	// telling contains the activities that notify members of the newest freeze or unfreeze, by the uid of the
	// member.
	telling map[string]*activeMember
	changed bool
}

// await waits until changed returns true or the freeze ends. At the end of the freeze, await records the end, so
// that each member deletes its RolloutFreeze.
func (r *registryRun) await(ctx workflow.Context, changed func() bool) error {
	freeze := r.registry.Freeze
	// Each freeze has its own change id, because GetVersion returns the same version for a change id in the whole
	// run.
	if freeze == nil || !freeze.Frozen || freeze.Until == nil ||
		workflow.GetVersion(ctx, fmt.Sprintf("end freeze %d", freeze.Sequence), workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return workflow.Await(ctx, changed)
	}
	timed, cancel := workflow.WithCancel(ctx)
	defer cancel()
	end := workflow.NewTimer(timed, freeze.Until.Sub(workflow.Now(ctx)))
	err := workflow.Await(ctx, func() bool { return end.IsReady() || changed() })
	if err == nil && end.IsReady() && r.registry.Freeze == freeze { // An update may have replaced the freeze.
		// freeze.Since identifies the freeze that ends. After a restore of Temporal, a member may have a newer
		// freeze, which does not end now.
		r.setFreeze(ctx, protocol.FleetFreeze{By: freeze.By, Reason: "the freeze has ended"}, freeze.Since)
	}
	return err
}

// tell notifies a member of the newest freeze or unfreeze. An unreachable member is notified once the member
// is reachable.
func (r *registryRun) tell(ctx workflow.Context, uid string) {
	if r.telling[uid] != nil {
		return
	}
	telling, cancel := workflow.WithCancel(ctx)
	self, freeze := &activeMember{cancel: cancel}, *r.registry.Freeze
	r.telling[uid] = self
	answer := workflow.ExecuteActivity(workflow.WithActivityOptions(telling, workflow.ActivityOptions{
		TaskQueue: protocol.FleetMemberTaskQueue(uid), StartToCloseTimeout: time.Minute, RetryPolicy: retryForever(), Summary: r.registry.Members[uid].Name,
	}), protocol.FleetFreezeActivity, freeze)
	workflow.Go(ctx, func(ctx workflow.Context) {
		err := answer.Get(ctx, nil)
		if r.telling[uid] != self {
			return // the activity was cancelled
		}
		delete(r.telling, uid)
		if err == nil {
			fleet.Hear(&r.registry, uid, freeze.Sequence)
		}
		r.changed = true
	})
}

// forget cancels the activity that notifies a member.
func (r *registryRun) forget(uid string) {
	if telling := r.telling[uid]; telling != nil {
		delete(r.telling, uid)
		telling.cancel()
	}
}

func (r *registryRun) handleRequests(ctx workflow.Context) error {
	return cmp.Or(
		workflow.SetQueryHandler(ctx, protocol.StatusQuery, func() (protocol.FleetRegistry, error) { return r.registry, nil }),
		handleUpdate(ctx, protocol.ApplyPolicyUpdate, r.apply, func(_ workflow.Context, applied protocol.ApplyFleetPolicy) error {
			return cmp.Or(fleet.Validate(&applied.Policy), fleet.CheckText(protocol.Approval{By: applied.By}))
		}),
		handleUpdate(ctx, protocol.RemoveMemberUpdate, r.remove, func(_ workflow.Context, cluster string) error {
			switch uids := fleet.Named(&r.registry, cluster); {
			case len(uids) == 0:
				return fmt.Errorf("no cluster of the fleet has the name or the uid %s", cluster)
			case len(uids) > 1:
				return fmt.Errorf("%d clusters have the name %s: remove one of them by its uid: %s", len(uids), cluster, strings.Join(uids, ", "))
			}
			return nil
		}),
		handleUpdate(ctx, protocol.FreezeUpdate, r.freeze, func(ctx workflow.Context, freeze protocol.FleetFreeze) error {
			return fleet.CheckFreeze(freeze, workflow.Now(ctx))
		}),
		handleUpdate(ctx, protocol.UnfreezeUpdate, r.unfreeze, func(_ workflow.Context, by protocol.FleetFreeze) error {
			// An unfreeze is always valid, because after a restore of Temporal, members may have a freeze that
			// the fleet has lost.
			return fleet.CheckText(protocol.Approval{By: by.By, Reason: by.Reason})
		}),
	)
}

func handleUpdate[Payload any](ctx workflow.Context, name string, do func(workflow.Context, Payload) string, check func(workflow.Context, Payload) error) error {
	return setHandler(ctx, name, func(ctx workflow.Context, payload Payload) (protocol.StepResult, error) {
		return protocol.StepResult{Message: do(ctx, payload)}, nil
	}, check)
}

func (r *registryRun) apply(_ workflow.Context, applied protocol.ApplyFleetPolicy) string {
	if r.registry.Policies == nil {
		r.registry.Policies = map[string]protocol.AppliedFleetPolicy{}
	}
	name := applied.Policy.Metadata.Name
	r.registry.Policies[name] = protocol.AppliedFleetPolicy{Spec: applied.Policy.Spec, By: applied.By}
	return "FleetPolicy " + name + " is applied"
}

func (r *registryRun) remove(_ workflow.Context, cluster string) string {
	for _, uid := range fleet.Named(&r.registry, cluster) {
		delete(r.registry.Members, uid)
		delete(r.registry.Heard, uid)
		r.forget(uid)
	}
	return "cluster " + cluster + " has left the fleet"
}

func (r *registryRun) freeze(ctx workflow.Context, freeze protocol.FleetFreeze) string {
	freeze.Frozen = true
	r.setFreeze(ctx, freeze, workflow.Now(ctx))
	return fmt.Sprintf("the fleet is frozen; %d members are notified", len(r.registry.Members))
}

func (r *registryRun) unfreeze(ctx workflow.Context, by protocol.FleetFreeze) string {
	r.setFreeze(ctx, protocol.FleetFreeze{By: by.By, Reason: by.Reason}, workflow.Now(ctx))
	return fmt.Sprintf("the freeze ends; %d members are notified", len(r.registry.Members))
}

func (r *registryRun) setFreeze(ctx workflow.Context, freeze protocol.FleetFreeze, since time.Time) {
	for _, uid := range fleet.Keys(r.telling) {
		r.forget(uid)
	}
	fleet.SetFreeze(&r.registry, freeze, since)
	r.changed = true
	workflow.GetLogger(ctx).Info("fleet: freeze", "frozen", freeze.Frozen, "by", freeze.By, "reason", freeze.Reason)
}
