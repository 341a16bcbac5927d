package ui

import (
	"context"
	"fmt"
	"slices"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/temporal"
)

// rollouts reads the open rollouts over many clusters, sorted by name.
func (f *fleetReader) rollouts(ctx context.Context) ([]protocol.FleetState, error) {
	var ids []string
	for request := (&workflowservice.ListWorkflowExecutionsRequest{
		Namespace: f.options.Namespace, Query: "WorkflowType = '" + protocol.FleetWorkflow + "' AND ExecutionStatus = 'Running'",
	}); ; {
		open, err := f.ListWorkflow(ctx, request)
		if err != nil {
			return nil, f.explain(err)
		}
		for _, run := range open.GetExecutions() {
			ids = append(ids, run.GetExecution().GetWorkflowId())
		}
		if request.NextPageToken = open.GetNextPageToken(); len(request.NextPageToken) == 0 {
			break
		}
	}
	slices.Sort(ids)
	states := make([]protocol.FleetState, len(ids))
	for i, id := range ids {
		answer, err := f.QueryWorkflow(ctx, id, "", protocol.StatusQuery)
		if err == nil {
			err = answer.Get(&states[i])
		}
		if err != nil {
			return nil, f.explain(fmt.Errorf("run %s: %w", id, err))
		}
	}
	return states, nil
}

func (f *fleetReader) explain(err error) error {
	if cause, remedy := temporal.ExplainCall(err); cause != "" {
		return fmt.Errorf("Temporal at %s, namespace %s: %s (%s)", f.options.Address, f.options.Namespace, cause, remedy) //nolint:staticcheck // Temporal is a name
	}
	return fmt.Errorf("Temporal at %s, namespace %s: %w", f.options.Address, f.options.Namespace, err) //nolint:staticcheck // Temporal is a name
}
