package workflows

import (
	"cmp"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/fleet"
)

// FleetRegistry keeps the policies and the members of a fleet (SPEC §12.1). Members announce
// themselves by the signal announce. The updates apply and remove change policies and members.
func FleetRegistry(ctx workflow.Context, registry protocol.FleetRegistry) error {
	announced := workflow.GetSignalChannel(ctx, protocol.AnnounceSignal)
	err := cmp.Or(
		workflow.SetQueryHandler(ctx, protocol.StatusQuery, func() (protocol.FleetRegistry, error) { return registry, nil }),
		workflow.SetUpdateHandlerWithOptions(ctx, protocol.ApplyPolicyUpdate,
			func(_ workflow.Context, applied protocol.ApplyFleetPolicy) (protocol.StepResult, error) {
				if registry.Policies == nil {
					registry.Policies = map[string]protocol.AppliedFleetPolicy{}
				}
				name := applied.Policy.Metadata.Name
				registry.Policies[name] = protocol.AppliedFleetPolicy{Spec: applied.Policy.Spec, By: applied.By}
				return protocol.StepResult{Message: "FleetPolicy " + name + " is applied"}, nil
			},
			workflow.UpdateHandlerOptions{Validator: func(_ workflow.Context, applied protocol.ApplyFleetPolicy) error {
				return cmp.Or(fleet.Validate(&applied.Policy), fleet.CheckText(protocol.Approval{By: applied.By}))
			}}),
		workflow.SetUpdateHandlerWithOptions(ctx, protocol.RemoveMemberUpdate,
			func(_ workflow.Context, name string) (protocol.StepResult, error) {
				for _, uid := range fleet.Keys(registry.Members) {
					if registry.Members[uid].Name == name {
						delete(registry.Members, uid)
					}
				}
				return protocol.StepResult{Message: "cluster " + name + " has left the fleet"}, nil
			},
			workflow.UpdateHandlerOptions{Validator: func(_ workflow.Context, name string) error {
				for _, uid := range fleet.Keys(registry.Members) {
					if registry.Members[uid].Name == name {
						return nil
					}
				}
				return fmt.Errorf("no cluster of the fleet has the name %s", name)
			}}),
	)
	if err != nil {
		return fmt.Errorf("answer requests: %w", err)
	}
	for {
		for _, member := range drain[protocol.FleetMember](announced) {
			if registry.Members == nil {
				registry.Members = map[string]protocol.FleetMember{}
			}
			registry.Members[member.UID] = member
		}
		info := workflow.GetInfo(ctx)
		if info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= longHistory {
			return workflow.NewContinueAsNewError(ctx, protocol.FleetRegistryWorkflow, registry)
		}
		due := func() bool {
			return announced.Len() > 0 || workflow.GetInfo(ctx).GetCurrentHistoryLength() >= longHistory
		}
		if err := workflow.Await(ctx, due); err != nil {
			return fmt.Errorf("wait for members: %w", err)
		}
	}
}
