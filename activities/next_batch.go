package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

const (
	// Slots that become free within the batch window go into one batch, so that
	// it is worth its dozen events in the history. The window grows with the
	// slots of the set, up to maxBatchWindow.
	maxBatchWindow     = 250 * time.Millisecond
	batchWindowPerSlot = 5 * time.Millisecond
	// idleTimeout is how long an activity stays although nothing moves. Longer
	// waits are the workflow's, which takes no slot of a worker.
	idleTimeout = 5 * time.Second
)

// NextBatch waits until pods of the generation can be upgraded and returns
// them, or says why none will be. It upgrades nothing. While pods move it goes
// on, NextBatchPoll long at most; once nothing has moved for idleTimeout it
// says what is waited for.
func (a *Activities) NextBatch(ctx context.Context, input protocol.NextBatchInput) (result protocol.NextBatchResult, err error) {
	defer a.keepAlive(ctx)()
	w := &wait{
		Activities: a, input: input, refused: setOf(input.Refused), unseen: a.newWrites(input.Written),
		set: a.liveSet(input.SidecarSet), idle: a.newIdle(),
	}
	err = a.poll(ctx, input.SidecarSet.Name, func() (again time.Duration, err error) {
		result, again, err = w.look(ctx)
		return again, err
	})
	if err == nil && result.Phase.Ended() && result.Phase != protocol.PhaseSuperseded {
		a.populations.Forget(input.SidecarSet.Name)
		claim := &claim{Activities: a, set: input.SidecarSet, run: runOf(ctx, input.Run)}
		err = claim.release(ctx, result.Phase == protocol.PhaseDeleted)
	}
	return result, err
}

// runOf names who holds the set's Lease: runs that began before there were
// Leases do not say.
func runOf(ctx context.Context, run string) string {
	if run == "" {
		return activity.GetInfo(ctx).WorkflowExecution.RunID
	}
	return run
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
	set     *liveSet
	refused map[protocol.PodReference]bool
	// unseen writes must show in the cache before it may be planned from.
	unseen *writes
	// first is when slots were first seen free.
	first time.Time
	idle  idle
}

// look makes one attempt. again says when to make another even if nothing
// changes; zero means that the result stands.
func (w *wait) look(ctx context.Context) (result protocol.NextBatchResult, again time.Duration, err error) {
	set, err := w.set.get(ctx)
	switch {
	case err != nil:
		return result, 0, err
	case set == nil:
		return protocol.NextBatchResult{Phase: protocol.PhaseDeleted, Message: "the SidecarSet is gone"}, 0, nil
	case set.Generation != w.input.Generation:
		return protocol.NextBatchResult{Phase: protocol.PhaseSuperseded, Generation: set.Generation}, 0, nil
	}
	if unseen, err := w.unseen.count(ctx); err != nil || unseen > 0 {
		return protocol.NextBatchResult{
			Phase: protocol.PhaseProgressing, Message: "waiting for the worker's cache to show the batch written last",
		}, heartbeatInterval, err
	}
	return w.plan(ctx, set)
}

func (w *wait) plan(ctx context.Context, set *v1alpha1.SidecarSet) (result protocol.NextBatchResult, again time.Duration, err error) {
	population, err := w.population(ctx, set)
	if err != nil {
		return result, 0, err
	}
	plan, err := rollout.Next(set, population, w.refused)
	if err != nil {
		return result, 0, err
	}
	if w.input.Held {
		return protocol.NextBatchResult{Phase: protocol.PhasePaused, Message: plan.Message, Counts: plan.Counts}, 0, nil
	}
	if w.input.SkipConditions {
		plan.FalseConditions, plan.TrueConditions = nil, nil
	}
	again = w.batchWindow(&plan)
	// Nobody waits for these: they come when nothing moves any more.
	if w.input.SkipTrueConditions || len(plan.Pods) > 0 || again > 0 {
		plan.TrueConditions = nil
	}
	if len(plan.FalseConditions)+len(plan.TrueConditions) > 0 && plan.Phase.Ended() {
		plan.Phase = protocol.PhaseProgressing
	}
	result = protocol.NextBatchResult{
		Phase: plan.Phase, Message: plan.Message, Pods: plan.Pods, Reserve: plan.Reserve,
		Counts: plan.Counts, Hot: plan.Hot, FalseConditions: plan.FalseConditions, TrueConditions: plan.TrueConditions,
	}
	return result, again, nil
}

// batchWindow is how long to wait for more pods before the plan is handed out:
// not at all when it has a reserve, which fills later slots, or when it takes
// two thirds of what may move. While nothing can move it is the time until the
// next look.
func (w *wait) batchWindow(plan *rollout.Plan) time.Duration {
	switch {
	case len(plan.FalseConditions) > 0:
		return 0
	case plan.Phase == protocol.PhaseWaiting:
		w.first = time.Time{}
		return w.idle.left(plan.Counts)
	case plan.Phase != protocol.PhaseProgressing:
		return 0
	case len(plan.Pods) == 0:
		return 0
	case len(plan.Reserve) > 0 || len(plan.Pods) == rollout.MaxBatch || 3*len(plan.Pods) >= 2*min(plan.Slots, plan.Counts.Remaining):
		return 0
	}
	if w.first.IsZero() {
		w.first = w.Clock.Now()
	}
	longest := min(maxBatchWindow, time.Duration(plan.Slots)*batchWindowPerSlot)
	return max(longest-w.Clock.Since(w.first), 0)
}

// idle notices when nothing moves any more.
type idle struct {
	clock  clock.PassiveClock
	counts protocol.Counts
	since  time.Time
}

func (a *Activities) newIdle() idle { return idle{clock: a.Clock, since: a.Clock.Now()} }

// moved has the time begin anew.
func (i *idle) moved() { i.since = i.clock.Now() }

// left is how long to stay until the next look, zero once nothing has moved for
// idleTimeout.
func (i *idle) left(counts protocol.Counts) time.Duration {
	if counts != i.counts {
		i.counts = counts
		i.moved()
	}
	return min(max(idleTimeout-i.clock.Since(i.since), 0), heartbeatInterval)
}
