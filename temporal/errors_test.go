package temporal

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/api/serviceerror"
)

func TestARunIsSilentIfNoWorkerResponds(t *testing.T) {
	for want, errs := range map[bool][]error{
		true: {
			context.DeadlineExceeded,
			serviceerror.NewDeadlineExceeded("query timed out before a worker could process it"),
			serviceerror.NewFailedPrecondition("no poller seen for task queue recently, worker may be down"),
			serviceerror.NewWorkflowNotReady("Unable to query workflow due to Workflow Task in failed state."),
		},
		false: {
			serviceerror.NewPermissionDenied("Request unauthorized.", ""),
			serviceerror.NewQueryFailed("unknown queryType"),
		},
	} {
		for _, err := range errs {
			assert.Equal(t, want, IsSilent(t.Context(), err), "%v", err)
		}
	}
}

// Temporal cancels a query whose worker stops. If the caller cancels the query, the result does not show
// whether workers respond.
func TestACancelledQueryIsSilentOnlyIfTemporalCancelledIt(t *testing.T) {
	cancelled := serviceerror.NewCanceled("context canceled")
	assert.True(t, IsSilent(t.Context(), cancelled))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, IsSilent(ended, cancelled))
}
