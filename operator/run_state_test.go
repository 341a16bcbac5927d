package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/rollout"
)

func TestARunThatDoesNothingWithItsWorkIsWokenLessAndLessOften(t *testing.T) {
	now := time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)
	state := runState{}
	// checked checks a run that sleeps, as often as it is due.
	checked := func(ready int) (woken bool) {
		seen := &observation{plan: rollout.Plan{Pods: make([]protocol.SelectedPod, 1), Counts: protocol.Counts{Matched: 9, Ready: ready, Remaining: 1}}}
		if state.untilCheck(seen, now) > 0 {
			return false
		}
		state.recordCheck(seen, now)
		return state.mayWake(now)
	}
	woken := 0
	for range 60 * 60 {
		if checked(1) {
			woken++
		}
		now = now.Add(time.Second)
	}
	assert.Less(t, woken, 16, "in an hour")
	now = now.Add(stuckCheckInterval)
	assert.True(t, checked(2), "something changed")
	assert.False(t, checked(2))
	now = now.Add(minCheckInterval)
	assert.True(t, checked(1), "what was seen before counts as well")
}

func TestTheRunOfAFinishedSetIsCheckedUntilItHasEnded(t *testing.T) {
	now := time.Unix(1000, 0)
	var state runState
	var waited []time.Duration
	for range 9 {
		left, known := state.untilEndCheck(7, now)
		require.False(t, known)
		waited = append(waited, left/time.Second)
		now = now.Add(left)
		state.recordEndCheck(7, true, now)
	}
	assert.Equal(t, []time.Duration{3, 6, 12, 24, 48, 96, 192, 300, 300}, waited)
	state.recordEndCheck(7, false, now)
	_, known := state.untilEndCheck(7, now)
	assert.True(t, known)

	_, known = state.untilEndCheck(8, now)
	assert.False(t, known, "another generation")
	state.recordEndCheck(8, false, now)
	state.recordCheck(&observation{plan: rollout.Plan{Phase: protocol.PhaseWaiting}}, now)
	left, known := state.untilEndCheck(8, now)
	assert.False(t, known, "it went on meanwhile")
	assert.Equal(t, minEndCheckInterval, left)
}
