package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// minFrozenWait is the shortest wait in phase Frozen. The clock of a worker may be slower than the clock of
// Temporal, so the freeze may still apply for the worker when the timer fires.
const minFrozenWait = time.Second

// awaitThaw waits in phase Frozen until a signal arrives. The operator signals the run once a freeze is deleted.
// A timer ends the wait when the freeze expires or the next window opens, and after checkInterval at the latest.
func (r *run) awaitThaw(ctx workflow.Context, plan protocol.NextBatchResult) error {
	wait := checkInterval
	if plan.FrozenUntil != nil {
		wait = min(max(plan.FrozenUntil.Sub(workflow.Now(ctx)), minFrozenWait), checkInterval)
	}
	// untilFailure shortens the wait, because pods may also fail during a freeze.
	return r.awaitSignalFor(ctx, r.untilFailure(wait), plan.Message)
}
