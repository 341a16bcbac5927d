package activities

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

// NextBatch waits until pods of the generation can be upgraded and returns
// them, or says why none will be. It upgrades nothing. While pods move it goes
// on, NextBatchPoll long at most; once nothing has moved for idleTimeout it
// says what is waited for. A cache that is out of date cannot say so: that is an
// error, and tried again.
func (a *Activities) NextBatch(ctx context.Context, input protocol.NextBatchInput) (result protocol.NextBatchResult, err error) {
	defer keepHeartbeating(ctx, a.Clock)()
	n := a.newNextBatch(input)
	err = a.poller().poll(ctx, input.SidecarSet.Name, func() (again time.Duration, err error) {
		result, again, err = n.look(ctx)
		return again, err
	})
	if err == nil && result.Phase.Ended() && result.Phase != protocol.PhaseSuperseded {
		a.populations.Forget(input.SidecarSet.Name)
		err = a.lease(input.SidecarSet, leaseIdentity(ctx, input.Run)).release(ctx, result.Phase == protocol.PhaseDeleted)
	}
	return result, err
}

func (a *Activities) newNextBatch(input protocol.NextBatchInput) *nextBatch {
	reader := a.reader()
	return &nextBatch{
		reader: reader, clock: a.Clock, input: input, refused: setOf(input.Refused),
		set: reader.recentSet(input.SidecarSet), unseen: reader.unseenWrites(input.Written), idle: newIdleTimer(a.Clock),
		current: a.current,
	}
}

func setOf(pods []protocol.PodReference) map[protocol.PodReference]bool {
	set := make(map[protocol.PodReference]bool, len(pods))
	for _, pod := range pods {
		set[pod] = true
	}
	return set
}

// nextBatch is one NextBatch in progress.
type nextBatch struct {
	reader  *reader
	clock   clock.PassiveClock
	input   protocol.NextBatchInput
	set     *recentSet
	refused map[protocol.PodReference]bool
	// unseen writes must show in the cache before it may be planned from.
	unseen *unseenWrites
	// firstFree is when slots were first seen free.
	firstFree time.Time
	// firstMigrated is when a pod was first seen that could be reset, and nobody does.
	firstMigrated time.Time
	idle          *idleTimer
	current       func() error
}

// look makes one attempt. again says when to make another even if nothing
// changes; zero means that the result stands.
func (n *nextBatch) look(ctx context.Context) (result protocol.NextBatchResult, again time.Duration, err error) {
	set, err := n.set.get(ctx)
	switch {
	case err != nil:
		return result, 0, err
	case set == nil:
		return protocol.NextBatchResult{Phase: protocol.PhaseDeleted, Message: "the SidecarSet is gone"}, 0, nil
	case set.Generation != n.input.Generation:
		return protocol.NextBatchResult{Phase: protocol.PhaseSuperseded, Generation: set.Generation}, 0, nil
	}
	if unseen, err := n.unseen.count(ctx); err != nil || unseen > 0 {
		return protocol.NextBatchResult{
			Phase: protocol.PhaseProgressing, Message: "waiting for the worker's cache to show the batch written last",
		}, heartbeatInterval, err
	}
	return n.plan(ctx, set)
}

func (n *nextBatch) plan(ctx context.Context, set *v1alpha1.SidecarSet) (result protocol.NextBatchResult, again time.Duration, err error) {
	population, err := n.reader.population(ctx, set)
	if err != nil {
		return result, 0, err
	}
	plan, err := rollout.Next(set, population, n.refused)
	if err != nil {
		return result, 0, err
	}
	if n.input.Held {
		return protocol.NextBatchResult{Phase: protocol.PhasePaused, Message: plan.Message, Counts: plan.Counts}, 0, nil
	}
	if n.input.SkipConditions {
		plan.FalseConditions, plan.TrueConditions = nil, nil
	}
	again = n.migrationWindow(&plan, n.batchWindow(&plan))
	if again == 0 && plan.Phase == protocol.PhaseWaiting {
		if err := n.current(); err != nil {
			return result, 0, err
		}
	}
	n.postponeConditions(&plan, again)
	result = protocol.NextBatchResult{
		Phase: plan.Phase, Message: plan.Message, Pods: plan.Pods, Reserve: plan.Reserve,
		Counts: plan.Counts, Hot: plan.Hot, FalseConditions: plan.FalseConditions, TrueConditions: plan.TrueConditions,
	}
	return result, again, nil
}

// postponeConditions leaves out those that nobody waits for, until nothing moves any more.
// A rollout that has some to write has not ended.
func (n *nextBatch) postponeConditions(plan *rollout.Plan, again time.Duration) {
	if n.input.SkipTrueConditions || len(plan.Pods) > 0 || again > 0 {
		plan.TrueConditions = nil
	}
	if len(plan.FalseConditions)+len(plan.TrueConditions) > 0 && plan.Phase.Ended() {
		plan.Phase = protocol.PhaseProgressing
	}
}

// batchWindow is how long to wait for more pods before the plan is handed out: not
// at all when it is worth a batch. While nothing can move it is the time until the
// next look.
func (n *nextBatch) batchWindow(plan *rollout.Plan) time.Duration {
	switch {
	case len(plan.FalseConditions) > 0:
		return 0
	case plan.Phase == protocol.PhaseWaiting:
		n.firstFree = time.Time{}
		return n.idle.left(plan.Counts)
	case plan.Phase != protocol.PhaseProgressing || len(plan.Pods) == 0:
		return 0
	}
	window := plan.BatchWindow()
	if window == 0 {
		return 0
	}
	if n.firstFree.IsZero() {
		n.firstFree = n.clock.Now()
	}
	return max(window-n.clock.Since(n.firstFree), 0)
}

// migrationWindow ends the wait when a pod could be reset for heartbeatInterval and the
// run waits for this answer before it does so: resets alone may free slots.
func (n *nextBatch) migrationWindow(plan *rollout.Plan, again time.Duration) time.Duration {
	if plan.Phase != protocol.PhaseWaiting || !n.input.MigrationIdle || plan.Counts.Migrated == 0 {
		n.firstMigrated = time.Time{}
		return again
	}
	if n.firstMigrated.IsZero() {
		n.firstMigrated = n.clock.Now()
	}
	again = min(again, max(heartbeatInterval-n.clock.Since(n.firstMigrated), 0))
	if again == 0 {
		plan.Phase = protocol.PhaseProgressing
	}
	return again
}
