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
	// heartbeatInterval is the time between two heartbeats, and between two checks while no event
	// arrives.
	heartbeatInterval = time.Second
	// heartbeatGrace is how long a batch may fill slots after a heartbeat that the server
	// answered. The server retries the activity of a worker on another one after
	// HeartbeatTimeout without a heartbeat. Half of that time lets requests on the wire arrive,
	// so that no two workers fill the same slots.
	heartbeatGrace = protocol.HeartbeatTimeout / 2
)

// writeDeadline is the time until which a worker may fill slots. Each heartbeat that the server
// answers extends it.
type writeDeadline struct {
	clock clock.WithTicker
	mu    sync.Mutex
	at    time.Time
}

func newWriteDeadline(clock clock.WithTicker) *writeDeadline {
	return &writeDeadline{clock: clock, at: clock.Now().Add(heartbeatGrace)}
}

// left is the time until the deadline.
func (d *writeDeadline) left() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at.Sub(d.clock.Now())
}

// keep heartbeats and extends the deadline, until stop. The returned context ends with ctx, when
// the server answers that the activity must end, and when the deadline passes. Its cause tells
// which.
func (d *writeDeadline) keep(ctx context.Context, heartbeat func(context.Context) error) (working context.Context, stop func()) {
	working, end := context.WithCancelCause(ctx)
	stopHeartbeats := everyHeartbeat(working, d.clock, func(ctx context.Context) {
		err := d.extend(ctx, heartbeat)
		if err != nil && (mustEnd(err) || d.left() <= 0) {
			end(err)
		}
	})
	return working, func() {
		stopHeartbeats()
		end(nil)
	}
}

func (d *writeDeadline) extend(ctx context.Context, heartbeat func(context.Context) error) error {
	// The server counts from the moment at which it receives the heartbeat, which is later.
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

// mustEnd reports whether the answer to a heartbeat ends the activity: the workflow or a person
// cancels it, or the server does not know it any more.
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

// answeredHeartbeat heartbeats with the current outcome and waits for the server's answer.
// activity.RecordHeartbeat does not report whether the server received the heartbeat, and using
// both would send two.
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

// keepHeartbeating heartbeats until stop, without waiting for answers.
func keepHeartbeating(ctx context.Context, clock clock.WithTicker) (stop func()) {
	return everyHeartbeat(ctx, clock, func(context.Context) { activity.RecordHeartbeat(ctx) })
}

// everyHeartbeat calls do once per heartbeatInterval, until stop.
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
