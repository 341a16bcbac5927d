package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

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
