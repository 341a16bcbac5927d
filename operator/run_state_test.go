package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/operator/runs"
)

func TestARunThatDoesNothingWithItsWorkIsWokenOnce(t *testing.T) {
	now := time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)
	state := runState{}
	// checked checks a sleeping run if a check is due, and reports whether the run may be woken.
	checked := func(counts protocol.Counts) (woken bool) {
		seen := &observation{plan: rollout.Plan{Pods: make([]protocol.SelectedPod, 1), Counts: counts}}
		if state.untilCheck(seen, now) > 0 {
			return false
		}
		state.recordCheck(seen, now)
		return state.mayWake(counts, false, now)
	}
	wakes := func(seconds int, counts func(second int) protocol.Counts) (woken int) {
		for second := range seconds {
			if checked(counts(second)) {
				woken++
			}
			now = now.Add(time.Second)
		}
		return woken
	}
	stuck := protocol.Counts{Matched: 9, Remaining: 3}
	assert.Equal(t, 1, wakes(3600, func(int) protocol.Counts { return stuck }), "in an hour")
	assert.Zero(t, wakes(600, func(second int) protocol.Counts {
		other := stuck
		other.Matched, other.Ready, other.Updated = second, second%2, second%3
		return other
	}), "other pods come, go and flap")
	assert.InDelta(t, 10, wakes(600, func(second int) protocol.Counts {
		other := stuck
		other.Unavailable = second % 2
		return other
	}), 1, "slots come and go, and no pod takes them")
	assert.Equal(t, 1, wakes(60, func(second int) protocol.Counts {
		state.recordNeed(need{work: second >= 30})
		return stuck
	}), "the app of another pod had taken the slot")
	budgets := stuck
	budgets.Ready++
	assert.False(t, state.mayWake(budgets, false, now.Add(minWakeInterval)))
	assert.True(t, state.mayWake(budgets, true, now.Add(minWakeInterval)), "a PodDisruptionBudget may allow an upgrade now")
	assert.Equal(t, 3, wakes(60, func(second int) protocol.Counts { return protocol.Counts{Matched: 9, Remaining: 2 - second/20} }), "each time that it did something")
}

func TestTheRunOfAFinishedSidecarSetIsCheckedAtOnceAndOnceMore(t *testing.T) {
	now := time.Unix(1000, 0)
	var state runState
	check := func(generation int64, found runs.Run) (left time.Duration, due bool) {
		left, due = state.untilEndCheck(generation, false, now)
		now = now.Add(left)
		set := setAt(0)
		set.Generation = generation
		state.recordEndCheck(set, &found, false, now)
		return left, due
	}
	left, due := check(7, runs.Run{Status: opened})
	assert.Zero(t, left, "immediately")
	assert.True(t, due)
	left, due = check(7, runs.Run{Status: opened})
	assert.Equal(t, endCheckInterval, left)
	assert.True(t, due)
	_, due = state.untilEndCheck(7, false, now)
	assert.False(t, due, "the run needs no further checks of the operator")
	_, due = state.untilEndCheck(7, true, now)
	assert.True(t, due, "its end is to be recorded")

	_, due = check(8, runs.Run{Status: completed})
	assert.True(t, due, "another generation")
	_, due = state.untilEndCheck(8, false, now)
	assert.False(t, due, "it has ended")
	state.recordCheck(&observation{plan: rollout.Plan{Phase: protocol.PhaseWaiting}}, now)
	left, due = state.untilEndCheck(8, false, now)
	assert.True(t, due, "it continued meanwhile")
	assert.Zero(t, left)
}

func TestMessagesAboutAFailureStay(t *testing.T) {
	failing := func(what, cause string) runs.Fault {
		return runs.Fault{Reason: v1alpha1.ReasonRolloutFailing, Message: what + " fails repeatedly: " + cause}
	}
	var state runState
	now := time.Unix(1000, 0)
	first, second, other := failing("activity A", "at 1"), failing("activity A", "at 2"), failing("activity B", "at 2")
	state.recordFault(first, true, now)
	state.recordFault(second, true, now.Add(time.Second))
	assert.Equal(t, first, state.fault)
	state.recordFault(runs.Fault{}, false, now.Add(time.Second))
	assert.Equal(t, first, state.fault, "until it is sure")
	state.recordFault(second, true, now.Add(minMessageAge))
	assert.Equal(t, second, state.fault)
	state.recordFault(other, true, now.Add(minMessageAge))
	assert.Equal(t, other, state.fault)
	state.recordFault(runs.Fault{}, true, now.Add(minMessageAge))
	assert.Equal(t, runs.Fault{}, state.fault)
	assert.False(t, state.faultMayChange)
}
