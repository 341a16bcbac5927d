package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/protocol"
)

func TestABatchIsWorthHandingOutWithAReserveOrMostOfWhatMayMove(t *testing.T) {
	for _, c := range []struct {
		name                            string
		pods, reserve, slots, remaining int
		want                            bool
	}{
		{"one of three slots", 1, 0, 3, 9, false},
		{"two of three slots", 2, 0, 3, 9, true},
		{"one of the two that remain", 1, 0, 9, 2, false},
		{"the one that remains", 1, 0, 9, 1, true},
		{"one, and a reserve", 1, 1, 9, 9, true},
		{"as many as a batch holds", MaxBatch, 0, 2 * MaxBatch, 9 * MaxBatch, true},
		{"one less than a batch holds", MaxBatch - 1, 0, 2 * MaxBatch, 9 * MaxBatch, false},
	} {
		plan := Plan{
			Pods: make([]protocol.SelectedPod, c.pods), Reserve: make([]protocol.SelectedPod, c.reserve),
			Slots: c.slots, Counts: protocol.Counts{Remaining: c.remaining},
		}
		assert.Equal(t, c.want, plan.isWorthHandingOut(), c.name)
	}
}
