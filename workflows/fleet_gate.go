package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/gate"
)

// activeMeasurement is a measurement of a gate in progress.
type activeMeasurement struct {
	input  *protocol.FleetGateInput
	cancel workflow.CancelFunc
}

// measure starts the next measurement, which any member executes, and cancels a measurement that the rollout
// no longer needs. The wait before a measurement is part of the activity, so the wait adds no timer to
// the history. The workflow does not block on the measurement.
func (f *fleetRun) measure(ctx workflow.Context, next *protocol.FleetGateInput) {
	if f.measuring != nil && next != nil && f.measuring.input.Same(next) {
		return
	}
	if f.measuring != nil {
		f.measuring.cancel()
		f.measuring = nil
	}
	if next == nil {
		return
	}
	measuring, cancel := workflow.WithCancel(ctx)
	self := &activeMeasurement{input: next, cancel: cancel}
	f.measuring = self
	answer := workflow.ExecuteActivity(workflow.WithActivityOptions(measuring, workflow.ActivityOptions{
		StartToCloseTimeout: gate.Timeout(&next.Gate) + gateMargin, HeartbeatTimeout: protocol.HeartbeatTimeout,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: gateRetryInterval},
		Summary:     "measure gate " + next.Gate.Name + " of stage " + next.Stage,
	}), protocol.FleetGateActivity, *next)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var measured protocol.Measurement
		err := answer.Get(ctx, &measured)
		if f.measuring != self {
			return // the measurement was cancelled
		}
		f.measuring = nil
		if err != nil {
			measured = protocol.Measurement{Phase: protocol.GateInconclusive, Message: err.Error()}
		}
		fleet.Measured(&f.state, next, measured, workflow.Now(ctx))
		f.changed = true
	})
}
