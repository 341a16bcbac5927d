package activities

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestResultsAreRefreshedOnceASecond(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	asked := 0
	set := newRecent(clock, "the set", func(context.Context) (int, error) {
		asked++
		return asked, nil
	})
	for range 100 {
		answer, err := set.get(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, answer)
	}
	clock.Step(usableAge + time.Millisecond)
	answer, err := set.get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, answer)
}

// If callers waited for each refresh, the API server would delay the use of free slots every second.
func TestCallersUseTheLastResultDuringARefresh(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	asked, answers := make(chan struct{}, 2), make(chan int, 1)
	set := newRecent(clock, "the set", func(context.Context) (int, error) {
		asked <- struct{}{}
		return <-answers, nil
	})
	answers <- 1
	_, err := set.get(t.Context())
	require.NoError(t, err)
	<-asked
	for _, age := range []time.Duration{refreshAge, usableAge} {
		clock.SetTime(noon.Add(age))
		answer, err := set.get(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, answer)
	}
	<-asked
	answers <- 2
	require.Eventually(t, func() bool {
		answer, err := set.get(t.Context())
		return err == nil && answer == 2
	}, 10*time.Second, time.Millisecond)
	assert.Empty(t, asked, "one question at a time")
}

func TestAnswersThatCameLateAreNotActedOn(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	took := maxAge
	set := newRecent(clock, "the set", func(context.Context) (int, error) {
		clock.Step(took)
		return 1, nil
	})
	_, err := set.get(t.Context())
	require.NoError(t, err)
	took = maxAge + time.Millisecond
	_, err = set.get(t.Context())
	require.EqualError(t, err, "read the set: the answer took 2.001s and is too old to act on")
}

func TestAFailedReadIsRetried(t *testing.T) {
	away := errors.New("connection refused")
	set := newRecent(clocktesting.NewFakeClock(noon), "the set", func(context.Context) (int, error) {
		err := away
		away = nil
		return 1, err
	})
	_, err := set.get(t.Context())
	require.EqualError(t, err, "connection refused")
	answer, err := set.get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, answer)
}

// countedClock counts the calls of Since.
type countedClock struct {
	*clocktesting.FakeClock
	asked atomic.Int32
}

func (c *countedClock) Since(t time.Time) time.Duration {
	c.asked.Add(1)
	return c.FakeClock.Since(t)
}

// Without a shared response, each writer would send a separate request while the API server is slow.
func TestConcurrentCallersShareASlowAnswer(t *testing.T) {
	clock := &countedClock{FakeClock: clocktesting.NewFakeClock(noon)}
	answers, asked := make(chan int), atomic.Int32{}
	set := newRecent(clock, "the set", func(context.Context) (int, error) {
		asked.Add(1)
		return <-answers, nil
	})
	got := make(chan int)
	get := func() {
		answer, err := set.get(t.Context())
		assert.NoError(t, err)
		got <- answer
	}
	go get()
	require.Eventually(t, func() bool { return asked.Load() == 1 }, 10*time.Second, time.Millisecond)
	before := clock.asked.Load()
	go get()
	require.Eventually(t, func() bool { return clock.asked.Load() > before }, 10*time.Second, time.Millisecond)
	clock.Step(maxAge - time.Millisecond)
	answers <- 1
	assert.Equal(t, 1, <-got)
	assert.Equal(t, 1, <-got)
	assert.EqualValues(t, 1, asked.Load())
}
