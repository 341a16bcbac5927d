package rollout

import "time"

const (
	// MinInterval is the shortest time between two plans.
	MinInterval = 50 * time.Millisecond
	// MaxShare limits planning to one part in MaxShare of the time, and to one part in
	// easyShare while open slots wait no longer than easyInterval.
	MaxShare     = 4
	easyShare    = 40
	easyInterval = 250 * time.Millisecond
)

// Slots that open within the batch delay are filled by one batch, because a batch adds a
// dozen events to the history.
const (
	maxBatchDelay     = 250 * time.Millisecond
	batchDelayPerSlot = 5 * time.Millisecond
)

// Interval is the time between a plan that took so long and the next plan.
func Interval(took time.Duration) time.Duration {
	return max(MinInterval, min(easyInterval, (easyShare-1)*took), (MaxShare-1)*took)
}

// BatchDelay is the time to wait for more pods before a batch of the plan starts. It is
// zero if the plan has queued pods or two thirds of the pods that can be upgraded.
func (p *Plan) BatchDelay() time.Duration {
	if len(p.Queued) > 0 || len(p.Pods) == MaxBatch || 3*len(p.Pods) >= 2*min(p.MaxUnavailable, p.Counts.Remaining) {
		return 0
	}
	return min(maxBatchDelay, time.Duration(p.MaxUnavailable)*batchDelayPerSlot)
}
