package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
)

// leaseTime is how long a batch may fill slots after it was last heard. The
// server gives the batch of a worker that it has not heard for HeartbeatTimeout
// to another one; half of that leaves what is on the wire time to arrive, so
// that no two workers fill the same slots.
const leaseTime = protocol.HeartbeatTimeout / 2

// lease is a worker's right to fill slots. It lasts while the server answers.
type lease struct {
	clock clock.WithTicker
	mu    sync.Mutex
	until time.Time
}

func newLease(clock clock.WithTicker) *lease {
	return &lease{clock: clock, until: clock.Now().Add(leaseTime)}
}

// left is how long the lease still lasts.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until.Sub(l.clock.Now())
}

// keep renews the lease by each sign of life that is answered, until stop.
func (l *lease) keep(ctx context.Context, live func(context.Context) error) (stop func()) {
	return everyHeartbeat(ctx, l.clock, func(ctx context.Context) { l.renew(ctx, live) })
}

func (l *lease) renew(ctx context.Context, live func(context.Context) error) {
	// The server counts from when it hears, which is not before this.
	sent := l.clock.Now()
	asking, done := context.WithTimeout(ctx, leaseTime)
	defer done()
	if live(asking) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = sent.Add(leaseTime)
}

// heartbeatAnswered tells the server how many pods were written, and waits for its
// answer. What the SDK records by itself also hears that the batch shall end,
// but not whether it was heard.
func heartbeatAnswered(ctx context.Context, outcome *outcome) func(context.Context) error {
	return func(asking context.Context) error {
		written := outcome.count()
		// The SDK goes on using the context after this call.
		activity.RecordHeartbeat(ctx, written)
		return activity.GetClient(ctx).RecordActivityHeartbeat(asking, activity.GetInfo(ctx).TaskToken, written)
	}
}

// keepAlive heartbeats without waiting for the server's answer, until stop.
func (a *Activities) keepAlive(ctx context.Context) (stop func()) {
	return everyHeartbeat(ctx, a.Clock, func(context.Context) { activity.RecordHeartbeat(ctx) })
}

// everyHeartbeat calls do once in each heartbeat interval, until stop.
func everyHeartbeat(ctx context.Context, clock clock.WithTicker, do func(context.Context)) (stop func()) {
	beating, stop := context.WithCancel(ctx)
	go func() {
		ticker := clock.NewTicker(heartbeatInterval)
		defer ticker.Stop()
		for {
			select {
			case <-beating.Done():
				return
			case <-ticker.C():
				do(beating)
			}
		}
	}()
	return stop
}
