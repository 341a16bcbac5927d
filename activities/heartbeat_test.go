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

func TestLeaseLastsWhileTheServerAnswers(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
	heard := func(context.Context) error { return nil }
	unheard := func(context.Context) error { return errors.New("unavailable") }
	late := func(context.Context) error {
		clock.Step(3 * time.Second)
		return nil
	}
	held := newLease(clock)
	assert.Equal(t, leaseTime, held.left())
	clock.Step(time.Second)
	held.renew(t.Context(), unheard)
	assert.Equal(t, leaseTime-time.Second, held.left())
	held.renew(t.Context(), heard)
	assert.Equal(t, leaseTime, held.left())
	held.renew(t.Context(), late)
	assert.Equal(t, leaseTime-3*time.Second, held.left(), "the server may have heard right after it was told")
	clock.Step(leaseTime)
	held.renew(t.Context(), unheard)
	assert.Negative(t, held.left())
	held.renew(t.Context(), heard)
	assert.Equal(t, leaseTime, held.left(), "heard again")
}

func TestLeaseIsKeptUntilTheEnd(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
	told, ended := make(chan struct{}), make(chan struct{})
	stop := newLease(clock).keep(t.Context(), func(ctx context.Context) error {
		told <- struct{}{}
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	for !clock.HasWaiters() {
		runtime.Gosched() // until its ticker runs
	}
	clock.Step(heartbeatInterval)
	<-told
	stop()
	<-ended
}
