package temporal

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/outrigger/outrigger/api/protocol"
)

// FleetIDs returns the sorted workflow ids of the open rollouts of the fleet (SPEC §12).
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

// concurrentQueries limits the queries of FleetRollouts that run at the same time.
const concurrentQueries = 8

// FleetRollouts returns the open rollouts of the fleet, sorted by the names of their SidecarSets. The state of
// a rollout that cannot be read contains only the name and a message with the error. If no rollout can be read,
// FleetRollouts returns an error.
func FleetRollouts(ctx context.Context, c client.Client) ([]protocol.FleetState, error) {
	ids, err := FleetIDs(ctx, c)
	if err != nil {
		return nil, err
	}
	states, failed := make([]protocol.FleetState, len(ids)), make([]error, len(ids))
	var queries errgroup.Group
	queries.SetLimit(concurrentQueries)
	for i, id := range ids {
		queries.Go(func() error {
			states[i], failed[i] = readRollout(ctx, c, id)
			return nil
		})
	}
	_ = queries.Wait() // The errors are in failed.
	readable := len(ids) == 0
	for i, err := range failed {
		if err == nil {
			readable = true
			continue
		}
		states[i] = protocol.FleetState{Set: protocol.FleetSet(ids[i]), Message: "the rollout cannot be read: " + Explained(err).Error()}
	}
	if !readable {
		return nil, failed[0]
	}
	return states, nil
}

// FleetRollout returns the rollout of a SidecarSet in the fleet. If no member has reported the SidecarSet,
// IsNotFound(err) is true.
func FleetRollout(ctx context.Context, c client.Client, set string) (protocol.FleetState, error) {
	return readRollout(ctx, c, protocol.FleetWorkflowID(set))
}

// FleetState returns the same state as FleetRollout, without the failures of activities in the message.
func FleetState(ctx context.Context, c client.Client, set string) (state protocol.FleetState, err error) {
	err = readFleet(ctx, c, protocol.FleetWorkflowID(set), &state)
	return state, err
}

// readRollout reads the state of a rollout. The state of the workflow does not contain the failure of an
// activity that is retried, for example because the provider of a gate is unavailable, or because the fleet
// has no FleetPolicy. Therefore, readRollout adds such failures to the message of the state.
func readRollout(ctx context.Context, c client.Client, id string) (state protocol.FleetState, err error) {
	if err := readFleet(ctx, c, id, &state); err != nil || state.Phase != protocol.FleetRolling {
		return state, err
	}
	described, err := c.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return state, fmt.Errorf("describe workflow %s: %w", id, err)
	}
	for _, pending := range described.GetPendingActivities() {
		if fault := retriedFault(pending); fault != "" {
			state.Message = strings.TrimPrefix(state.Message+"; "+fault, "; ")
		}
	}
	return state, nil
}

// retriedFault describes the failure of a measurement or of a read of the registry. If payloads are encrypted,
// the message of the failure is also encrypted, so the text does not show the cause.
func retriedFault(pending *workflow.PendingActivityInfo) string {
	failure := pending.GetLastFailure()
	if failure == nil || failure.GetApplicationFailureInfo().GetType() == protocol.GateNotDue {
		return ""
	}
	switch pending.GetActivityType().GetName() {
	case protocol.FleetGateActivity:
		return "the measurement failed, and is retried: " + protocol.Summary(failure.GetMessage())
	case protocol.FleetPlanActivity:
		return "the policy and the members cannot be read, and the read is retried: " + protocol.Summary(failure.GetMessage())
	}
	return ""
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
