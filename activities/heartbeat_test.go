package activities

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTheWriteDeadlineMovesWhileTheServerAnswers(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
	heard := func(context.Context) error { return nil }
	unheard := func(context.Context) error { return errors.New("unavailable") }
	late := func(context.Context) error {
		clock.Step(3 * time.Second)
		return nil
	}
	deadline := newWriteDeadline(clock)
	assert.Equal(t, heartbeatGrace, deadline.left())
	clock.Step(time.Second)
	deadline.extend(t.Context(), unheard)
	assert.Equal(t, heartbeatGrace-time.Second, deadline.left())
	deadline.extend(t.Context(), heard)
	assert.Equal(t, heartbeatGrace, deadline.left())
	deadline.extend(t.Context(), late)
	assert.Equal(t, heartbeatGrace-3*time.Second, deadline.left(), "the server may have heard right after it was sent")
	clock.Step(heartbeatGrace)
	deadline.extend(t.Context(), unheard)
	assert.Negative(t, deadline.left())
	deadline.extend(t.Context(), heard)
	assert.Equal(t, heartbeatGrace, deadline.left(), "heard again")
}

func TestHeartbeatsGoOnUntilTheEnd(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
	sent, ended := make(chan struct{}), make(chan struct{})
	stop := newWriteDeadline(clock).keep(t.Context(), func(ctx context.Context) error {
		sent <- struct{}{}
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	for !clock.HasWaiters() {
		runtime.Gosched() // until its ticker runs
	}
	clock.Step(heartbeatInterval)
	<-sent
	stop()
	<-ended
}
