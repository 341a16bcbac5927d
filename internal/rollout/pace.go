package rollout

import "time"

const (
	// MinInterval is the shortest time between two plans.
	MinInterval = 50 * time.Millisecond
	// MaxShare limits planning to 1/MaxShare of the time. easyShare limits planning to 1/easyShare of the time,
	// but delays the next plan by at most easyInterval.
	MaxShare     = 4
	easyShare    = 10
	easyInterval = 250 * time.Millisecond
)

// One batch fills all slots that open within the batch delay. Each batch adds about a dozen events to the history
// of the workflow, so a few large batches are better than many small batches.
const (
	maxBatchDelay     = 250 * time.Millisecond
	batchDelayPerSlot = 5 * time.Millisecond
)

// Interval returns the time between a plan and the next plan. took is the time that was needed to compute the
// plan.
func Interval(took time.Duration) time.Duration {
	return max(MinInterval, min(easyInterval, (easyShare-1)*took), (MaxShare-1)*took)
}

// BatchDelay returns the time to wait for more pods before a batch of the plan starts. The time is zero if
// the plan has queued pods or a full batch. The time is also zero if the plan has at least two thirds of the
// pods that can be upgraded at the same time.
func (p *Plan) BatchDelay() time.Duration {
	if len(p.Queued) > 0 || len(p.Pods) == MaxBatch || 3*len(p.Pods) >= 2*min(p.MaxUnavailable, p.Counts.Remaining) {
		return 0
	}
	return min(maxBatchDelay, time.Duration(p.MaxUnavailable)*batchDelayPerSlot)
}
