package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// heartbeatInterval is how often an activity heartbeats, and how often it
	// looks again when nothing seems to change.
	heartbeatInterval = time.Second
	// heartbeatGrace is how long a batch may fill slots after a heartbeat that was
	// answered. The server gives the batch of a worker that it has not heard for
	// HeartbeatTimeout to another one; half of that leaves what is on the wire
	// time to arrive, so that no two workers fill the same slots.
	heartbeatGrace = protocol.HeartbeatTimeout / 2
)

// writeDeadline is until when a worker may fill slots. Each heartbeat that the
// server answers moves it.
type writeDeadline struct {
	clock clock.WithTicker
	mu    sync.Mutex
	at    time.Time
}

func newWriteDeadline(clock clock.WithTicker) *writeDeadline {
	return &writeDeadline{clock: clock, at: clock.Now().Add(heartbeatGrace)}
}

// left is the time until then.
func (d *writeDeadline) left() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at.Sub(d.clock.Now())
}

// keep heartbeats, and moves the deadline, until stop.
func (d *writeDeadline) keep(ctx context.Context, heartbeat func(context.Context) error) (stop func()) {
	return everyHeartbeat(ctx, d.clock, func(ctx context.Context) { d.extend(ctx, heartbeat) })
}

func (d *writeDeadline) extend(ctx context.Context, heartbeat func(context.Context) error) {
	// The server counts from when it hears, which is not before this.
	sent := d.clock.Now()
	asking, done := context.WithTimeout(ctx, heartbeatGrace)
	defer done()
	if heartbeat(asking) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = sent.Add(heartbeatGrace)
}

// answeredHeartbeat heartbeats with how many pods were written, and waits for the
// server's answer. The heartbeat that the SDK sends by itself learns that the
// batch shall end, but not whether the server heard it.
func answeredHeartbeat(ctx context.Context, outcome *outcome) func(context.Context) error {
	return func(asking context.Context) error {
		written := outcome.count()
		// The SDK goes on using the context after this call.
		activity.RecordHeartbeat(ctx, written)
		return activity.GetClient(ctx).RecordActivityHeartbeat(asking, activity.GetInfo(ctx).TaskToken, written)
	}
}

// keepHeartbeating heartbeats without waiting for the server's answer, until stop.
func keepHeartbeating(ctx context.Context, clock clock.WithTicker) (stop func()) {
	return everyHeartbeat(ctx, clock, func(context.Context) { activity.RecordHeartbeat(ctx) })
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
