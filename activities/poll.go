package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// replanInterval is the shortest pause between two plans. Planning may take
	// one part of the time in replanShare.
	replanInterval = 20 * time.Millisecond
	replanShare    = 10
	// heartbeatInterval is how often an activity heartbeats, and how often it
	// looks again when nothing seems to change.
	heartbeatInterval = time.Second
)

var errStopping = errors.New("this worker is stopping; another one goes on")

// poll looks at a set again and again: whenever something about it changes,
// and when look asks for it. It ends when look returns zero or an error, and
// after NextBatchPoll with what was seen last.
func (a *Activities) poll(ctx context.Context, set string, look func() (again time.Duration, err error)) error {
	changed, done := a.Changes.Wait(set)
	defer done()
	end := a.Clock.After(protocol.NextBatchPoll)
	for {
		began := a.Clock.Now()
		again, err := look()
		if err != nil || again == 0 {
			return err
		}
		// A storm of events must not mean looking without pause.
		if err := a.sleep(ctx, max(replanInterval, (replanShare-1)*a.Clock.Since(began))); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-a.Clock.After(again):
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return errStopping
		}
	}
}

func (a *Activities) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-a.Clock.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// each does something with every pod of a batch, several at a time. The first
// error ends it.
func each[T any](ctx context.Context, a *Activities, batch []T, do func(context.Context, T) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(a.Writers)
	stopping := activity.GetWorkerStopChannel(ctx)
	for _, one := range batch {
		group.Go(func() error {
			select {
			case <-groupCtx.Done():
				return groupCtx.Err()
			case <-stopping:
				return errStopping
			default:
				return do(groupCtx, one)
			}
		})
	}
	return group.Wait()
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
