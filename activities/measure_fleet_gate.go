package activities

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/activity"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/gate"
)

// MeasureFleetGate makes one measurement of a gate of a fleet (SPEC 12.2.10). The measurement reads no objects of
// the cluster, and sends no Secret. If the provider is unavailable, MeasureFleetGate returns an error, and
// Temporal retries the activity.
func (a *Activities) MeasureFleetGate(ctx context.Context, input protocol.FleetGateInput) (protocol.Measurement, error) {
	if err := notDue(input.NotBefore, activity.GetInfo(ctx).StartedTime); err != nil {
		return protocol.Measurement{}, err
	}
	if _, secret := gate.Credentials(&input.Gate); secret != "" {
		return inconclusive("a gate of a fleet must not have credentials"), nil
	}
	defer keepHeartbeating(ctx, a.Clock)()
	ctx, cancel := context.WithTimeout(ctx, gate.Timeout(&input.Gate))
	defer cancel()
	m := &measurement{
		Activities: a, revision: input.Hash, workflow: workflowOfFleetGate(&input), remedy: "correct the policy and retry the rollout",
		input: protocol.MeasureGateInput{
			SidecarSet: protocol.SetReference{Name: input.Set}, Policy: input.Policy, Step: input.Stage, Gate: input.Gate, Previous: input.Previous,
		},
	}
	measured, err := m.measure(ctx)
	if err != nil {
		return measured, fmt.Errorf("FleetPolicy %s: gate %s: %w", input.Policy, input.Gate.Name, err)
	}
	measured.Message = protocol.Summary(measured.Message)
	return measured, nil
}

// workflowOfFleetGate returns the id of the workflow of a gate for one attempt of one stage. The id contains the
// time at which the stage was reached, because the same content may reach the stage again after a rollout of
// other content.
func workflowOfFleetGate(in *protocol.FleetGateInput) string {
	return fmt.Sprintf("gate/fleet/%s/%s/%s/%s/%d-%d", in.Set, in.Hash, in.Stage, in.Gate.Name, in.Reached.UnixMilli(), in.Attempt)
}
