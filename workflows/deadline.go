package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// outage is the delay of a result or a timer after which the run assumes that the worker or Temporal was down.
// During an outage, no pod can be upgraded, and no plan observes the pods that become ready.
const outage = time.Minute

// minDeadlineWait is the shortest wait for the progress deadline, and for a pod that may fail.
const minDeadlineWait = time.Second

// deadlineLeft returns the time until the progress deadline. runs is false if no deadline applies.
func (r *run) deadlineLeft(ctx workflow.Context) (left time.Duration, runs bool) {
	deadline := r.progress.Stage.ProgressDeadline()
	if r.progress.Stall == nil || deadline == 0 {
		return 0, false
	}
	return deadline - workflow.Now(ctx).Sub(r.progress.Stall.Since), true
}

// overdue returns the stall if the progress deadline has passed, and nil otherwise.
func (r *run) overdue(ctx workflow.Context) *protocol.Stall {
	if left, runs := r.deadlineLeft(ctx); runs && left <= 0 {
		return r.progress.Stall
	}
	return nil
}

// dropStallAfterOutage drops the stall if a result or a timer is late by more than outage. began is the time of
// the request or of the start of the timer, and after is the expected duration. The progress deadline then
// restarts with the next plan.
func (r *run) dropStallAfterOutage(ctx workflow.Context, began time.Time, after time.Duration) (dropped bool) {
	if r.progress.Stall == nil || workflow.Now(ctx).Sub(began)-after <= outage {
		return false
	}
	r.progress.Stall = nil
	return true
}

// untilFailure returns wait, or the time until the next plan is due if this time is shorter.
func (r *run) untilFailure(wait time.Duration) time.Duration {
	if r.again == 0 {
		return wait
	}
	return min(wait, max(r.again, minDeadlineWait))
}
