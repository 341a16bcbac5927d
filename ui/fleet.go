package ui

import (
	"context"
	"fmt"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/temporal"
)

// rollouts reads the open rollouts across many clusters, sorted by name.
func (f *fleetReader) rollouts(ctx context.Context) ([]protocol.FleetState, error) {
	states, err := temporal.FleetRollouts(ctx, f)
	if err != nil {
		return nil, f.explain(err)
	}
	return states, nil
}

func (f *fleetReader) explain(err error) error {
	if cause, remedy := temporal.ExplainCall(err); cause != "" {
		return fmt.Errorf("Temporal at %s, namespace %s: %s (%s)", f.options.Address, f.options.Namespace, cause, remedy) //nolint:staticcheck // Temporal is a name
	}
	return fmt.Errorf("Temporal at %s, namespace %s: %w", f.options.Address, f.options.Namespace, err) //nolint:staticcheck // Temporal is a name
}
