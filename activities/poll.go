package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/rollout"
)

// idleTimeout is the maximum time that an activity waits while nothing changes. After idleTimeout, the activity
// returns, and the workflow waits instead, because a waiting workflow does not occupy a worker.
const idleTimeout = 5 * time.Second

// poll calls check immediately, after each change of the SidecarSet or its pods, and after the time that check
// returns. poll returns when check returns zero or an error, when ctx ends, when the worker stops, and after
// NextBatchPoll.
func (a *Activities) poll(ctx context.Context, set string, check func() (again time.Duration, err error)) error {
	end := a.Clock.After(protocol.NextBatchPoll)
	for {
		changed := a.Changes.Next(set)
		began := a.Clock.Now()
		again, err := check()
		if err != nil || again == 0 {
			return err
		}
		// A burst of events must not cause continuous checks.
		if err := a.sleep(ctx, rollout.Interval(a.Clock.Since(began))); err != nil {
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

// await calls check now and after each change of the SidecarSet or its pods. await reports whether check
// returned true within atMost.
func (a *Activities) await(ctx context.Context, set string, atMost time.Duration, check func() (bool, error)) (bool, error) {
	for end := a.Clock.After(atMost); ; {
		changed := a.Changes.Next(set)
		if held, err := check(); err != nil || held {
			return held, err
		}
		select {
		case <-changed:
		case <-end:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// sleep waits for d. If the worker of the activity stops first, sleep returns errStopping.
func (a *Activities) sleep(ctx context.Context, d time.Duration) error {
	var stopping <-chan struct{}
	if activity.IsActivity(ctx) {
		stopping = activity.GetWorkerStopChannel(ctx)
	}
	select {
	case <-a.Clock.After(d):
		return nil
	case <-stopping:
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idleTimer measures the time since the counts last changed.
type idleTimer struct {
	clock  clock.PassiveClock
	counts protocol.Counts
	since  time.Time
}

func newIdleTimer(clock clock.PassiveClock) *idleTimer {
	return &idleTimer{clock: clock, since: clock.Now()}
}

func (t *idleTimer) reset() { t.since = t.clock.Now() }

// left returns the time until the next check, at most heartbeatInterval. The time is zero once the counts
// have not changed for idleTimeout.
func (t *idleTimer) left(counts protocol.Counts) time.Duration {
	if counts != t.counts {
		t.counts = counts
		t.reset()
	}
	return min(max(idleTimeout-t.clock.Since(t.since), 0), heartbeatInterval)
}
