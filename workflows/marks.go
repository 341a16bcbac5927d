package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// markPods writes conditions of pods that are out of date. Where that is
// refused, the run does without.
func (r *run) markPods(ctx workflow.Context, pods []protocol.PodReference) error {
	var result protocol.MarkPodsResult
	err := workflow.ExecuteActivity(batchOptions(ctx, fmt.Sprintf("mark %d pods", len(pods))), protocol.MarkPodsActivity, protocol.MarkPodsInput{
		SidecarSet: r.input.SidecarSet,
		Generation: r.input.Generation,
		Pods:       pods,
	}).Get(ctx, &result)
	if err != nil {
		return fmt.Errorf("mark pods of generation %d: %w", r.input.Generation, err)
	}
	r.skipMarks = len(result.Failed) > 0
	r.marked = result.Written
	return nil
}

// markLater writes conditions beside the batches, so that no pod waits for them.
func (r *run) markLater(ctx workflow.Context, pods []protocol.PodReference) {
	r.marking = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { r.marking = false }()
		r.markErr = r.markPods(ctx, pods)
	})
}
