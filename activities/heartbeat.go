package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// heartbeatInterval is the time between two heartbeats. heartbeatInterval also limits the time between two
	// checks of the cluster without an event.
	heartbeatInterval = time.Second
	// heartbeatGrace is the time for which a batch may fill slots after an acknowledged heartbeat. After
	// HeartbeatTimeout without a heartbeat, the server retries the activity on another worker. The rest of
	// HeartbeatTimeout is the time for requests in flight to arrive, so that no two workers fill the same slots.
	heartbeatGrace = protocol.HeartbeatTimeout / 2
)

// writeDeadline is the time until which a worker may fill slots. Each heartbeat that the server acknowledges
// extends the deadline.
type writeDeadline struct {
	clock clock.WithTicker
	mu    sync.Mutex
	at    time.Time
}

// newWriteDeadline returns a deadline that has already passed, because the process may have been suspended since
// the start of the activity. Only an acknowledged heartbeat shows that the server has not retried the activity.
func newWriteDeadline(clock clock.WithTicker) *writeDeadline {
	return &writeDeadline{clock: clock, at: clock.Now()}
}

// left returns the time until the deadline. The time is negative after the deadline.
func (d *writeDeadline) left() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at.Sub(d.clock.Now())
}

// keep sends heartbeats and extends the deadline, until stop is called. keep returns once the first heartbeat has
// succeeded or failed. The returned context ends when ctx ends, when the response to a heartbeat requires the end
// of the activity, or when a heartbeat fails after the deadline. The cause of the context contains the reason.
func (d *writeDeadline) keep(ctx context.Context, heartbeat func(context.Context) error) (working context.Context, stop func()) {
	working, end := context.WithCancelCause(ctx)
	extend := func(ctx context.Context) {
		err := d.extend(ctx, heartbeat)
		if err != nil && (mustEnd(err) || d.left() <= 0) {
			end(err)
		}
	}
	extend(working)
	stopHeartbeats := everyHeartbeat(working, d.clock, extend)
	return working, func() {
		stopHeartbeats()
		end(nil)
	}
}

func (d *writeDeadline) extend(ctx context.Context, heartbeat func(context.Context) error) error {
	// The server measures the timeout from the receipt of the heartbeat, which is later than sent.
	sent := d.clock.Now()
	ctx, done := context.WithTimeout(ctx, heartbeatGrace)
	defer done()
	if err := heartbeat(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = sent.Add(heartbeatGrace)
	return nil
}

// mustEnd reports whether the error of a heartbeat requires the end of the activity: the workflow or a user has
// cancelled, paused or reset the activity, or the server no longer accepts heartbeats of the activity.
func mustEnd(err error) bool {
	var (
		cancelled *temporal.CanceledError
		over      *serviceerror.NotFound
		elsewhere *serviceerror.NamespaceNotActive
		gone      *serviceerror.NamespaceNotFound
	)
	return errors.As(err, &cancelled) || errors.Is(err, activity.ErrActivityPaused) || errors.Is(err, activity.ErrActivityReset) ||
		errors.As(err, &over) || errors.As(err, &elsewhere) || errors.As(err, &gone)
}

// answeredHeartbeat returns a function that sends a heartbeat with the current outcome and waits for the response
// of the server. activity.RecordHeartbeat does not report whether the server received the heartbeat.
func answeredHeartbeat(ctx context.Context, outcome *outcome) func(context.Context) error {
	info, server := activity.GetInfo(ctx), activity.GetClient(ctx)
	return func(ctx context.Context) error {
		return server.RecordActivityHeartbeatWithOptions(ctx, client.RecordActivityHeartbeatOptions{
			TaskToken: info.TaskToken, Details: outcome.details(),
			Namespace: info.Namespace, WorkflowID: info.WorkflowExecution.ID, WorkflowType: info.WorkflowType.Name,
			ActivityType: info.ActivityType.Name, TaskQueue: info.TaskQueue,
		})
	}
}

// keepHeartbeating sends heartbeats until stop is called or ctx ends, without waiting for responses.
func keepHeartbeating(ctx context.Context, clock clock.WithTicker) (stop func()) {
	return everyHeartbeat(ctx, clock, func(context.Context) { activity.RecordHeartbeat(ctx) })
}

// everyHeartbeat calls do once per heartbeatInterval, until stop is called or ctx ends.
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
