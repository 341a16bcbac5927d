package activities

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/temporal"
)

func TestACancelledActivityHasNotFailed(t *testing.T) {
	for name, c := range map[string]struct {
		cause     error
		requested bool
	}{
		"the workflow cancels the activity": {temporal.NewCanceledError(), true},
		"the activity is over":              {errors.New("heartbeat timeout"), false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			assert.False(t, endedEarly(ctx, nil))
			cancel(c.cause)
			assert.Equal(t, c.requested, endedEarly(ctx, ctx.Err()))
		})
	}
	assert.True(t, endedEarly(t.Context(), errStopping), "a worker that stops")
	assert.True(t, endedEarly(t.Context(), stopped("paused")), "a set that is paused")
}
