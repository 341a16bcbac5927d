package temporal

import (
	"context"
	"fmt"
	"slices"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/outrigger/outrigger/api/protocol"
)

// FleetIDs returns the sorted workflow ids of the open rollouts over many clusters (SPEC §12).
func FleetIDs(ctx context.Context, c client.Client) (ids []string, err error) {
	request := &workflowservice.ListWorkflowExecutionsRequest{Query: "WorkflowType = '" + protocol.FleetWorkflow + "' AND ExecutionStatus = 'Running'"}
	for {
		open, err := c.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list the rollouts of the fleet: %w", err)
		}
		for _, run := range open.GetExecutions() {
			ids = append(ids, run.GetExecution().GetWorkflowId())
		}
		if request.NextPageToken = open.GetNextPageToken(); len(request.NextPageToken) == 0 {
			slices.Sort(ids)
			return ids, nil
		}
	}
}

// FleetRollouts returns the open rollouts over many clusters, sorted by the names of their SidecarSets.
func FleetRollouts(ctx context.Context, c client.Client) ([]protocol.FleetState, error) {
	ids, err := FleetIDs(ctx, c)
	if err != nil {
		return nil, err
	}
	states := make([]protocol.FleetState, len(ids))
	for i, id := range ids {
		if states[i], err = readRollout(ctx, c, id); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// FleetRollout returns the rollout of a SidecarSet over many clusters. If no member has reported the
// SidecarSet, IsNotFound returns true for the error.
func FleetRollout(ctx context.Context, c client.Client, set string) (protocol.FleetState, error) {
	return readRollout(ctx, c, protocol.FleetWorkflowID(set))
}

// readRollout reads the state of a rollout. The state of the workflow does not contain the failure of an
// activity that is retried, for example because the provider of a gate is unavailable. Therefore, readRollout
// adds the failure of a measurement to the message of the state.
func readRollout(ctx context.Context, c client.Client, id string) (state protocol.FleetState, err error) {
	if err := readFleet(ctx, c, id, &state); err != nil || state.Phase != protocol.FleetRolling || state.Reached == nil {
		return state, err
	}
	described, err := c.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return state, fmt.Errorf("describe workflow %s: %w", id, err)
	}
	for _, pending := range described.GetPendingActivities() {
		failure := pending.GetLastFailure()
		if pending.GetActivityType().GetName() == protocol.FleetGateActivity && failure != nil && failure.GetApplicationFailureInfo().GetType() != protocol.GateNotDue {
			// If payloads are encrypted, the message of the failure is also encrypted.
			state.Message += "; the measurement failed, and is retried: " + protocol.Summary(failure.GetMessage())
		}
	}
	return state, nil
}

// FleetRegistry returns the policies and the members of the fleet.
func FleetRegistry(ctx context.Context, c client.Client) (registry protocol.FleetRegistry, err error) {
	err = readFleet(ctx, c, protocol.FleetRegistryID, &registry)
	return registry, err
}

// readFleet queries the state of a workflow of the fleet, and stores the state in into.
func readFleet(ctx context.Context, c client.Client, id string, into any) error {
	answer, err := c.QueryWorkflow(ctx, id, "", protocol.StatusQuery)
	if err == nil {
		err = answer.Get(into)
	}
	if err != nil {
		return fmt.Errorf("read workflow %s: %w", id, err)
	}
	return nil
}
