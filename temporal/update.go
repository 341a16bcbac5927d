package temporal

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

// retryUpdate is the wait before an update is sent again.
const retryUpdate = 100 * time.Millisecond

// Update sends an update to a workflow, and stores the result of the update in result. Temporal drops an
// update if the workflow task of the update fails, for example because a signal arrives while the run ends.
// In this case, Update sends the update again until ctx ends. The error is the error of the last attempt.
func Update(ctx context.Context, c client.Client, options client.UpdateWorkflowOptions, result any) error {
	options.WaitForStage = client.WorkflowUpdateStageCompleted
	for {
		handle, err := c.UpdateWorkflow(ctx, options)
		if err == nil {
			err = handle.Get(ctx, result)
		}
		if _, lost := errors.AsType[*serviceerror.WorkflowNotReady](err); !lost {
			return err
		}
		select {
		case <-time.After(retryUpdate):
		case <-ctx.Done():
			return err
		}
	}
}
