package activities

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// answeredDeadline returns a deadline that a heartbeat has just extended.
func answeredDeadline(clock clock.WithTicker) *writeDeadline {
	return &writeDeadline{clock: clock, at: clock.Now().Add(heartbeatGrace)}
}

func TestTheWriteDeadlineIsExtendedWhileTheServerResponds(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
	heard := func(context.Context) error { return nil }
	unheard := func(context.Context) error { return errors.New("unavailable") }
	late := func(context.Context) error {
		clock.Step(3 * time.Second)
		return nil
	}
	deadline := newWriteDeadline(clock)
	assert.Zero(t, deadline.left(), "the process may have been frozen since the start of the activity")
	require.Error(t, deadline.extend(t.Context(), unheard))
	assert.Zero(t, deadline.left())
	require.NoError(t, deadline.extend(t.Context(), heard))
	assert.Equal(t, heartbeatGrace, deadline.left())
	clock.Step(time.Second)
	require.Error(t, deadline.extend(t.Context(), unheard))
	assert.Equal(t, heartbeatGrace-time.Second, deadline.left())
	require.NoError(t, deadline.extend(t.Context(), heard))
	assert.Equal(t, heartbeatGrace, deadline.left())
	require.NoError(t, deadline.extend(t.Context(), late))
	assert.Equal(t, heartbeatGrace-3*time.Second, deadline.left(), "the server may have heard right after it was sent")
	clock.Step(heartbeatGrace)
	require.Error(t, deadline.extend(t.Context(), unheard))
	assert.Negative(t, deadline.left())
	require.NoError(t, deadline.extend(t.Context(), heard))
	assert.Equal(t, heartbeatGrace, deadline.left(), "heard again")
}

// afterTheFirst returns a function whose first call succeeds, and whose later calls call heartbeat.
func afterTheFirst(heartbeat func(context.Context) error) func(context.Context) error {
	answered := false
	return func(ctx context.Context) error {
		if answered {
			return heartbeat(ctx)
		}
		answered = true
		return nil
	}
}

// The process may be suspended between the start and the first heartbeat of the activity, and Temporal may retry
// the activity meanwhile.
func TestSpec7_5_AnActivityWithoutAnAnsweredHeartbeatFillsNoSlot(t *testing.T) {
	for _, answer := range []error{serviceerror.NewNotFound("retried"), serviceerror.NewUnavailable("away"), context.DeadlineExceeded} {
		clock := clocktesting.NewFakeClock(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
		deadline := newWriteDeadline(clock)
		working, stop := deadline.keep(t.Context(), func(context.Context) error { return answer })
		defer stop()
		require.ErrorIs(t, context.Cause(working), answer)
		assert.LessOrEqual(t, deadline.left(), time.Duration(0))
	}
}

func TestHeartbeatsContinueUntilTheEnd(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
	sent, ended := make(chan struct{}), make(chan struct{})
	_, stop := newWriteDeadline(clock).keep(t.Context(), afterTheFirst(func(ctx context.Context) error {
		sent <- struct{}{}
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}))
	for !clock.HasWaiters() {
		runtime.Gosched() // wait for the start of the heartbeat ticker
	}
	clock.Step(heartbeatInterval)
	<-sent
	stop()
	<-ended
}

func TestHeartbeatErrorsEndTheActivity(t *testing.T) {
	unavailable := serviceerror.NewUnavailable("away")
	for name, c := range map[string]struct {
		answer error
		// beats is the number of failed heartbeats after which the activity ends.
		beats     int
		requested bool
	}{
		"cancelled":          {temporal.NewCanceledError(), 1, true},
		"paused":             {activity.ErrActivityPaused, 1, false},
		"reset":              {activity.ErrActivityReset, 1, false},
		"not known":          {serviceerror.NewNotFound("gone"), 1, false},
		"server unavailable": {unavailable, int(heartbeatGrace / heartbeatInterval), false},
		"never answered":     {context.DeadlineExceeded, int(heartbeatGrace / heartbeatInterval), false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
			beats := make(chan struct{})
			working, stop := newWriteDeadline(clock).keep(t.Context(), afterTheFirst(func(context.Context) error {
				beats <- struct{}{}
				return c.answer
			}))
			defer stop()
			for !clock.HasWaiters() {
				runtime.Gosched() // wait for the start of the heartbeat ticker
			}
			for range c.beats {
				require.NoError(t, working.Err())
				clock.Step(heartbeatInterval)
				<-beats
			}
			<-working.Done()
			require.ErrorIs(t, context.Cause(working), c.answer)
			assert.Equal(t, c.requested, cancelRequested(working))
		})
	}
}
