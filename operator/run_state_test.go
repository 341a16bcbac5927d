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
	working := func(ready int) *observation {
		return &observation{plan: rollout.Plan{Counts: protocol.Counts{Matched: 9, Ready: ready, Remaining: 1}}}
	}
	state, woken := runState{}, 0
	for range 60 * 60 {
		if state.mayWake(working(1), now) {
			woken++
		}
		now = now.Add(time.Second)
	}
	assert.Less(t, woken, 16, "in an hour")
	assert.True(t, state.mayWake(working(2), now), "something changed")
	assert.False(t, state.mayWake(working(2), now))
}
