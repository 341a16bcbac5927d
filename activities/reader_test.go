package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestRecentAnswersAreAskedForOnceASecond(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	asked := 0
	set := newRecent(clock, func(context.Context) (int, error) {
		asked++
		return asked, nil
	})
	for range 100 {
		answer, err := set.get(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, answer)
	}
	clock.Step(refreshAge)
	answer, err := set.get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, answer)
}

func TestAnswersThatCameLateAreNotActedOn(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	took := maxAge
	set := newRecent(clock, func(context.Context) (int, error) {
		clock.Step(took)
		return 1, nil
	})
	_, err := set.get(t.Context())
	require.NoError(t, err)
	took = maxAge + time.Millisecond
	_, err = set.get(t.Context())
	require.EqualError(t, err, "the API server's answer took 2.001s and is too old to act on")
}

func TestAFailedAnswerIsAskedForAgain(t *testing.T) {
	away := errors.New("connection refused")
	set := newRecent(clocktesting.NewFakeClock(noon), func(context.Context) (int, error) {
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
