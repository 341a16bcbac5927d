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
		{"as many as a batch holds", MaxBatch, 0, 2 * MaxBatch, 9 * MaxBatch, true},
		{"one less than a batch holds", MaxBatch - 1, 0, 2 * MaxBatch, 9 * MaxBatch, false},
	} {
		plan := Plan{
			Pods: make([]protocol.SelectedPod, c.pods), Queued: make([]protocol.SelectedPod, c.queued),
			MaxUnavailable: c.slots, Counts: protocol.Counts{Remaining: c.remaining},
		}
		assert.Equal(t, c.atOnce, plan.BatchDelay() == 0, c.name)
	}
}
