package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/rollout"
)

// idleTimeout is how long an activity stays although nothing moves. Longer waits are
// the workflow's, which takes no slot of a worker.
const idleTimeout = 5 * time.Second

// poller looks at a set again and again.
type poller struct {
	clock   clock.Clock
	changes *Changes
}

// poll calls look whenever something about a set changes, and when look asks for
// it. It ends when look returns zero or an error, and after NextBatchPoll with
// what was seen last.
func (p *poller) poll(ctx context.Context, set string, look func() (again time.Duration, err error)) error {
	changed, done := p.changes.Wait(set)
	defer done()
	end := p.clock.After(protocol.NextBatchPoll)
	for {
		began := p.clock.Now()
		again, err := look()
		if err != nil || again == 0 {
			return err
		}
		// A storm of events must not mean looking without pause.
		if err := p.sleep(ctx, rollout.Pause(p.clock.Since(began))); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-p.clock.After(again):
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return errStopping
		}
	}
}

// await looks for a condition now and after each change about a set, and reports whether
// it held in time.
func (p *poller) await(ctx context.Context, set string, atMost time.Duration, look func() (bool, error)) (bool, error) {
	changed, done := p.changes.Wait(set)
	defer done()
	for end := p.clock.After(atMost); ; {
		if held, err := look(); err != nil || held {
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

func (p *poller) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-p.clock.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idleTimer notices when nothing moves any more.
type idleTimer struct {
	clock  clock.PassiveClock
	counts protocol.Counts
	since  time.Time
}

func newIdleTimer(clock clock.PassiveClock) *idleTimer {
	return &idleTimer{clock: clock, since: clock.Now()}
}

// reset has the time begin anew.
func (t *idleTimer) reset() { t.since = t.clock.Now() }

// left is how long to stay until the next look, zero once nothing has moved for
// idleTimeout.
func (t *idleTimer) left(counts protocol.Counts) time.Duration {
	if counts != t.counts {
		t.counts = counts
		t.reset()
	}
	return min(max(idleTimeout-t.clock.Since(t.since), 0), heartbeatInterval)
}
