package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/rollout"
)

// polling runs poll in the background. Each check blocks until the test supplies the result of the check.
type polling struct {
	t        *testing.T
	clock    *clocktesting.FakeClock
	changes  *Changes
	stopping chan struct{}
	cancel   context.CancelFunc
	// looking receives a value when a check starts. looks supplies the result of the check.
	looking chan struct{}
	looks   chan time.Duration
	done    chan error
	// timers is the number of running timers: one timer for the end of the poll, and one timer after each
	// check.
	timers int
}

func newPolling(t *testing.T) *polling {
	p := &polling{
		t: t, clock: clocktesting.NewFakeClock(noon), changes: &Changes{}, stopping: make(chan struct{}),
		looking: make(chan struct{}), looks: make(chan time.Duration), done: make(chan error, 1), timers: 1,
	}
	begun := make(chan struct{})
	go func() {
		p.done <- inActivity(t, p.stopping, func(ctx context.Context) error {
			ctx, p.cancel = context.WithCancel(ctx)
			close(begun)
			a := &Activities{Clock: p.clock, Changes: p.changes}
			return a.poll(ctx, "logs", func() (time.Duration, error) {
				p.looking <- struct{}{}
				again := <-p.looks
				if again < 0 {
					return 0, errors.New("look failed")
				}
				return again, nil
			})
		})
	}()
	<-begun
	return p
}

// await waits until the poll waits for n timers.
func (p *polling) await(n int) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.clock.Waiters() == n }, 10*time.Second, time.Millisecond)
}

// answer waits for a check and supplies again as the result of the check.
func (p *polling) answer(again time.Duration) {
	<-p.looking
	p.looks <- again
}

// look supplies the result of one check and advances the clock by the minimum interval.
func (p *polling) look(again time.Duration) {
	p.t.Helper()
	p.answer(again)
	p.await(p.timers + 1)
	p.clock.Step(rollout.MinInterval)
	p.timers++
	p.await(p.timers)
}

func TestAPollEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*polling)
		want error
	}{
		"when the look has a result": {func(p *polling) {
			p.changes.wake("logs")
			p.answer(0)
		}, nil},
		"when the look fails": {func(p *polling) {
			p.changes.wake("logs")
			p.answer(-1)
		}, errors.New("look failed")},
		"at its poll time":               {func(p *polling) { p.clock.Step(protocol.NextBatchPoll) }, nil},
		"when the worker stops":          {func(p *polling) { close(p.stopping) }, errStopping},
		"when the workflow withdraws it": {func(p *polling) { p.cancel() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolling(t)
			p.look(time.Hour)
			c.end(p)
			assert.Equal(t, c.want, <-p.done)
		})
	}
}

func TestAPollChecksAgainAfterAChangeAndAfterTheRequestedTime(t *testing.T) {
	p := newPolling(t)
	p.look(time.Hour)
	p.changes.wake("another")
	p.changes.wake("logs")
	p.look(time.Minute)
	p.clock.Step(time.Minute)
	p.answer(0)
	require.NoError(t, <-p.done)
}

// Many events in a short time must not cause continuous planning.
func TestPlanningTakesAShareOfTheTime(t *testing.T) {
	p := newPolling(t)
	<-p.looking
	p.changes.wake("logs")
	// The plan takes one second.
	p.clock.Step(time.Second)
	p.looks <- time.Hour
	p.await(2)
	p.clock.Step((rollout.MaxShare-1)*time.Second - time.Millisecond)
	assert.Equal(t, 2, p.clock.Waiters(), "the pause goes on")
	p.clock.Step(time.Millisecond)
	p.answer(0)
	require.NoError(t, <-p.done)
}

func TestAnActivityStaysAsLongAsCountsMove(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	idle := newIdleTimer(clock)
	clock.Step(idleTimeout - time.Millisecond)
	assert.Equal(t, time.Millisecond, idle.left(protocol.Counts{}))
	assert.Equal(t, heartbeatInterval, idle.left(protocol.Counts{Ready: 1}), "something moved")
	clock.Step(idleTimeout)
	assert.Zero(t, idle.left(protocol.Counts{Ready: 1}))
	idle.reset()
	assert.Equal(t, heartbeatInterval, idle.left(protocol.Counts{Ready: 1}))
}
