package activities

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
)

// A write that was begun ends with the worker's connection, not with the wish of
// the workflow.
func TestACancelRequestLeavesWhatIsBeingWritten(t *testing.T) {
	for name, c := range map[string]struct {
		cause     error
		requested bool
	}{
		"the workflow asks for the end": {temporal.NewCanceledError(), true},
		"the activity is over":          {errors.New("heartbeat timeout"), false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			writing, done := withoutCancelRequest(ctx)
			assert.False(t, endedEarly(ctx, nil))
			cancel(c.cause)
			assert.Equal(t, c.requested, endedEarly(ctx, ctx.Err()))
			if c.requested {
				require.NoError(t, writing.Err())
				done()
			}
			<-writing.Done()
			done()
		})
	}
	assert.True(t, endedEarly(t.Context(), errStopping), "a worker that stops")
}
