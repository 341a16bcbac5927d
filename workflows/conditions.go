package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// conditions is what a run keeps about the pods' condition SidecarSetUpgradable.
type conditions struct {
	// skip is set while writes are refused: the run goes on without.
	skip bool
	// running is set while conditions are written beside the batches, and
	// omitted if they were when the newest plan was asked for, which then does
	// not name them.
	running, omitted bool
	// written are the pods whose conditions were written last. The next plan
	// waits until the cache shows them, or it would name them again.
	written []protocol.WrittenPod
	err     error
}

// writeConditions writes the conditions of pods that are out of date.
func (r *run) writeConditions(ctx workflow.Context, pods []protocol.PodReference) error {
	var result protocol.WriteUpgradableConditionsResult
	err := workflow.ExecuteActivity(batchOptions(ctx, fmt.Sprintf("mark %d pods", len(pods))),
		protocol.WriteUpgradableConditionsActivity, protocol.WriteUpgradableConditionsInput{
			SidecarSet: r.input.SidecarSet,
			Generation: r.input.Generation,
			Pods:       pods,
		}).Get(ctx, &result)
	if err != nil {
		return fmt.Errorf("mark pods of generation %d: %w", r.input.Generation, err)
	}
	r.conditions.skip = len(result.Failed) > 0
	r.conditions.written = result.Written
	r.failures = noteFailures(r.failures, nil, result.Failed)
	return nil
}

// writeConditionsLater writes conditions beside the batches, so that no pod
// waits for them.
func (r *run) writeConditionsLater(ctx workflow.Context, pods []protocol.PodReference) {
	r.conditions.running = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { r.conditions.running = false }()
		r.conditions.err = r.writeConditions(ctx, pods)
	})
}
