package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// conditions is the state of the activity that writes the condition SidecarSetUpgradable of pods.
type conditions struct {
	// running is set while an activity writes conditions in parallel with the batches. omitted is
	// set if the activity was running when the newest plan was requested, because that plan does
	// not list all conditions.
	running, omitted bool
	// written lists the pods whose conditions were written last. The next plan waits until the cache shows
	// the writes to these pods. Otherwise, the plan would list the pods again.
	written []protocol.WrittenPod
	err     error
}

// writeConditions writes the outdated conditions of pods.
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
	r.conditions.written = result.Written
	r.rejectedConditions().record(workflow.Now(ctx), references(result.Written), result.Rejected)
	r.rejectedPods = recordRejected(r.rejectedPods, nil, result.Rejected)
	return nil
}

// writeConditionsLater starts the writes of conditions in parallel with the batches, so that no upgrade waits
// for these writes.
func (r *run) writeConditionsLater(ctx workflow.Context, pods []protocol.PodReference) {
	r.conditions.running = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { r.conditions.running = false }()
		r.conditions.err = r.writeConditions(ctx, pods)
	})
}
