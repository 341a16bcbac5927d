package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
