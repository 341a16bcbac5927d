package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/protocol"
)

func TestABatchWaitsForMorePodsUnlessItHasQueuedPodsOrMostOfTheSlots(t *testing.T) {
	for _, c := range []struct {
		name                           string
		pods, queued, slots, remaining int
		atOnce                         bool
	}{
		{"one of three slots", 1, 0, 3, 9, false},
		{"two of three slots", 2, 0, 3, 9, true},
		{"one of the two that remain", 1, 0, 9, 2, false},
		{"the one that remains", 1, 0, 9, 1, true},
		{"one, and a queued pod", 1, 1, 9, 9, true},
		{"as many pods as a batch contains", MaxBatch, 0, 2 * MaxBatch, 9 * MaxBatch, true},
		{"one pod less than a batch contains", MaxBatch - 1, 0, 2 * MaxBatch, 9 * MaxBatch, false},
	} {
		plan := Plan{
			Pods: make([]protocol.SelectedPod, c.pods), Queued: make([]protocol.SelectedPod, c.queued),
			MaxUnavailable: c.slots, Counts: protocol.Counts{Remaining: c.remaining},
		}
		assert.Equal(t, c.atOnce, plan.BatchDelay() == 0, c.name)
	}
}

func TestTheMessageOfAPlanDoesNotContradictItself(t *testing.T) {
	plan := Plan{MaxUnavailable: 2, Counts: protocol.Counts{Matched: 6, Updated: 4, Unavailable: 4, Remaining: 2}}
	assert.Equal(t, "4 of 6 pods updated, 0 of them ready; 2 to go, 4 unavailable, more than the 2 allowed", plan.message())
	plan.Counts.Unavailable, plan.Counts.Migrating = 2, 3
	assert.Equal(t, "4 of 6 pods updated, 0 of them ready; 2 to go, 2 unavailable of 2 allowed; 3 in a hot upgrade", plan.message(), "these pods serve")
	plan = Plan{MaxUnavailable: 2, NotReady: 1, Counts: protocol.Counts{Matched: 3, Updated: 3, Unavailable: 2}}
	assert.Equal(t, "3 of 3 pods updated, 0 of them ready; 0 to go, 2 unavailable of 2 allowed, 1 more not ready", plan.message())
}
