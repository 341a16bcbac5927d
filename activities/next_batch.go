package activities

import (
	"context"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

// Freed slots are collected for a while, so that a batch is worth its dozen
// events in the history: the longer, the more slots there are, up to gather.
const (
	gather        = 250 * time.Millisecond
	gatherPerSlot = 5 * time.Millisecond
	// A rollout that waits for pods says so once nothing has moved for a while.
	stillness = 5 * time.Second
)

// NextBatch waits until pods of the generation can be upgraded and returns
// them, or says why none will be. It changes nothing. While it has nothing to
// say it waits, NextBatchPoll long at most; but counts that the run does not
// have are worth an answer once they have stayed for a while.
func (a *Activities) NextBatch(ctx context.Context, input protocol.NextBatchInput) (result protocol.NextBatchResult, err error) {
	defer a.keepBeating(ctx)()
	w := &wait{Activities: a, input: input, refused: setOf(input.Refused), unseen: input.Written}
	err = a.poll(ctx, input.SidecarSet.Name, func() (again time.Duration, err error) {
		result, again, err = w.look(ctx)
		return again, err
	})
	if result.Phase.Ended() {
		a.memories.Forget(input.SidecarSet.Name)
	}
	return result, err
}

func setOf(pods []protocol.PodReference) map[protocol.PodReference]bool {
	set := make(map[protocol.PodReference]bool, len(pods))
	for _, pod := range pods {
		set[pod] = true
	}
	return set
}

// wait is one NextBatch in progress.
type wait struct {
	*Activities
	input   protocol.NextBatchInput
	refused map[protocol.PodReference]bool
	// unseen writes must show in the cache before it may be planned from.
	unseen []protocol.WrittenPod
	// first is when slots were first seen free.
	first time.Time
	// counts were seen last, for the first time at since.
	counts protocol.Counts
	since  time.Time
}

// look makes one attempt. again says when to make another even if nothing
// changes; zero means that the result stands.
func (w *wait) look(ctx context.Context) (result protocol.NextBatchResult, again time.Duration, err error) {
	set, err := w.set(ctx, w.input.SidecarSet)
	if err != nil {
		return result, 0, err
	}
	switch {
	case set == nil:
		return protocol.NextBatchResult{Phase: protocol.PhaseDeleted, Message: "the SidecarSet is gone"}, 0, nil
	case set.Generation > w.input.Generation:
		return protocol.NextBatchResult{Phase: protocol.PhaseSuperseded, Generation: set.Generation}, 0, nil
	case set.Generation < w.input.Generation:
		return waitingFor("the worker's cache to show this generation"), beat, nil
	}
	if w.unseen, err = w.notShown(ctx, w.unseen); err != nil || len(w.unseen) > 0 {
		return waitingFor("the worker's cache to show the batch written last"), beat, err
	}
	return w.plan(ctx, set)
}

func (w *wait) plan(ctx context.Context, set *v1alpha1.SidecarSet) (result protocol.NextBatchResult, again time.Duration, err error) {
	population, err := w.population(ctx, set)
	if err != nil {
		return result, 0, err
	}
	if left := rollout.Quiet(set, population, len(w.input.Written) > 0).Sub(w.Clock.Now()); left > 0 {
		return waitingFor("the rollout of an earlier SidecarSet of this name to let go"), min(left, beat), nil
	}
	plan, err := rollout.Next(set, population, w.refused)
	if err != nil {
		return result, 0, err
	}
	if w.input.SkipMarks {
		plan.Marks = nil
	}
	if len(plan.Marks) > 0 && plan.Phase.Ended() {
		plan.Phase = protocol.PhaseProgressing
	}
	result = protocol.NextBatchResult{
		Phase: plan.Phase, Message: plan.Message, Pods: plan.Pods, Reserve: plan.Reserve,
		Counts: plan.Counts, Hot: plan.Hot, Marks: plan.Marks,
	}
	return result, w.patience(&plan), nil
}

func waitingFor(what string) protocol.NextBatchResult {
	return protocol.NextBatchResult{Phase: protocol.PhaseWaiting, Message: "waiting for " + what}
}

// patience says how long to wait for a better plan. A batch with a reserve goes
// on by itself, and one of two thirds of the window is worth its events at
// once; fewer pods wait for company.
func (w *wait) patience(plan *rollout.Plan) time.Duration {
	switch {
	case len(plan.Marks) > 0:
		return 0
	case plan.Phase == protocol.PhaseWaiting:
		w.first = time.Time{}
		return w.still(plan.Counts)
	case plan.Phase != protocol.PhaseProgressing:
		return 0
	case len(plan.Reserve) > 0 || len(plan.Pods) == rollout.MaxBatch || 3*len(plan.Pods) >= 2*min(plan.Slots, plan.Counts.Remaining):
		return 0
	}
	if w.first.IsZero() {
		w.first = w.Clock.Now()
	}
	longest := min(gather, time.Duration(plan.Slots)*gatherPerSlot)
	return max(longest-w.Clock.Since(w.first), 0)
}

// still says how long to go on waiting for pods: until nothing moves any more,
// if the run does not know the counts yet.
func (w *wait) still(counts protocol.Counts) time.Duration {
	if counts == w.input.Shown {
		return beat
	}
	now := w.Clock.Now()
	if counts != w.counts {
		w.counts, w.since = counts, now
	}
	return min(max(stillness-now.Sub(w.since), 0), beat)
}
