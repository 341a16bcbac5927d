package rollout

import "time"

const (
	// MinPause is the shortest time between two plans.
	MinPause = 50 * time.Millisecond
	// MaxShare bounds planning: it takes one part of the time in so many at most, and one in
	// easyShare as long as free slots wait for easyPause at most.
	MaxShare  = 4
	easyShare = 40
	easyPause = 250 * time.Millisecond
)

// Slots that become free within the batch window go into one batch, so that it is worth
// its dozen events in the history.
const (
	maxBatchWindow     = 250 * time.Millisecond
	batchWindowPerSlot = 5 * time.Millisecond
)

// Pause is the time between a plan that took so long and the next one.
func Pause(took time.Duration) time.Duration {
	return max(MinPause, min(easyPause, (easyShare-1)*took), (MaxShare-1)*took)
}

// BatchWindow is how long to wait for more pods before the plan is handed out: not at
// all when it is worth one.
func (p *Plan) BatchWindow() time.Duration {
	if p.isWorthHandingOut() {
		return 0
	}
	return min(maxBatchWindow, time.Duration(p.Slots)*batchWindowPerSlot)
}

// isWorthHandingOut reports whether the plan's pods are worth a batch: it has a
// reserve, which fills later slots, or takes two thirds of what may move.
func (p *Plan) isWorthHandingOut() bool {
	return len(p.Reserve) > 0 || len(p.Pods) == MaxBatch || 3*len(p.Pods) >= 2*min(p.Slots, p.Counts.Remaining)
}
