package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// NextBatch waits until pods can be upgraded to the generation, and returns these pods, or the reason why no pod
// can be upgraded. The activity writes no pod. At the end of a rollout, the activity releases the Lease. While
// pods change, the activity waits at most for NextBatchPoll. Once nothing has changed for idleTimeout, the
// activity returns the reason why the rollout waits. If the cache is stale, NextBatch returns an error, and
// Temporal retries the activity.
func (a *Activities) NextBatch(ctx context.Context, input protocol.NextBatchInput) (result protocol.NextBatchResult, err error) {
	defer keepHeartbeating(ctx, a.Clock)()
	n := a.newNextBatch(input)
	err = a.poll(ctx, input.SidecarSet.Name, func() (again time.Duration, err error) {
		n.reportStage(ctx)
		result, again, err = n.check(ctx)
		return again, err
	})
	if err == nil && result.Phase.Ended() && result.Phase != protocol.PhaseSuperseded {
		a.populations.Forget(input.SidecarSet.Name)
		a.health.Forget(input.SidecarSet.Name)
		err = a.lease(input.SidecarSet, leaseIdentity(ctx, input.Run)).release(ctx, result.Phase == protocol.PhaseDeleted)
	}
	return result, err
}

func (a *Activities) newNextBatch(input protocol.NextBatchInput) *nextBatch {
	return &nextBatch{
		Activities: a, input: input, began: a.Clock.Now(),
		set: a.recentSet(input.SidecarSet, input.Stage), unseen: a.unseenWrites(input.Written), idle: newIdleTimer(a.Clock),
	}
}

// budgetInterval is the time to the next plan while a PodDisruptionBudget stops the rollout. The operator does
// not watch PodDisruptionBudgets, so no signal wakes the run.
const budgetInterval = time.Minute

// nextBatch is the state of one NextBatch activity in progress.
type nextBatch struct {
	*Activities
	input protocol.NextBatchInput
	set   *recentSet
	began time.Time
	// unseen contains the writes that the cache must show before NextBatch makes a plan from the
	// cache.
	unseen *unseenWrites
	// firstFree is the time at which free slots were first observed.
	firstFree time.Time
	// firstMigrated is the time at which a pod that can be reset was first observed while no reset
	// was running.
	firstMigrated time.Time
	idle          *idleTimer
	// resolved is the Stage of this activity. stageIsRead is set once the Stage has been read, because the
	// activity reads the policy only once.
	resolved    *protocol.Stage
	stageIsRead bool
	// progressDue is set if the progress deadline of the stage applies to the newest plan.
	progressDue bool
	// healthAgain is the time until the next observation of pods that are not ready, or 0.
	healthAgain time.Duration
	// stageReported is set once the operator was notified of the stage.
	stageReported bool
}

// check makes one plan. again is the time until the next check if nothing changes. If again is zero, the
// result is final.
func (n *nextBatch) check(ctx context.Context) (result protocol.NextBatchResult, again time.Duration, err error) {
	set, err := n.set.get(ctx)
	switch {
	case err != nil:
		return result, 0, err
	case set == nil:
		return protocol.NextBatchResult{Phase: protocol.PhaseDeleted, Message: "the SidecarSet is gone"}, 0, nil
	case set.Generation != n.input.Generation:
		return protocol.NextBatchResult{Phase: protocol.PhaseSuperseded, Generation: set.Generation, Stage: n.recordedStage(set)}, 0, nil
	}
	if unseen, err := n.unseen.count(ctx); err != nil || unseen > 0 {
		return protocol.NextBatchResult{
			Phase: protocol.PhaseProgressing, Message: "waiting for the worker's cache to show the batch written last",
		}, heartbeatInterval, err
	}
	if result, again, err = n.plan(ctx, set); err == nil && !n.input.Stages {
		again = n.omitStages(&result, again)
	} else if n.resolved.ProgressDeadline() > 0 {
		result.Took = n.Clock.Since(n.began)
	}
	return result, again, err
}

func (n *nextBatch) plan(ctx context.Context, set *v1alpha1.SidecarSet) (result protocol.NextBatchResult, again time.Duration, err error) {
	population, err := n.population(ctx, set)
	if err != nil {
		return result, 0, err
	}
	rejected := markRejected(population, n.input.Rejected)
	goneConditions := markRejectedConditions(population, n.input.RejectedConditions)
	current, err := n.acceptedStage(ctx, set, population)
	if err != nil {
		return result, 0, err
	}
	if stage.RollsBack(current, set.Generation) != nil && n.input.Stage.Generation != set.Generation {
		// The rollback of an earlier generation continues. The next plan uses the target of the rollback.
		return protocol.NextBatchResult{Phase: protocol.PhaseProgressing, Message: current.Quarantine.Message(), Stage: current}, 0, nil
	}
	plan, failure, err := n.planPods(ctx, set, population, rejected, current)
	if err != nil {
		return result, 0, err
	}
	if result, ended, err := n.withoutPods(ctx, set, population, &plan, failure); err != nil || ended {
		return result, 0, err
	}
	n.awaitResets(&plan)
	again = n.migrationDelay(&plan, n.batchDelay(&plan))
	if again == 0 && (plan.Phase == protocol.PhaseWaiting || len(plan.Pods) > 0) || plan.Phase == protocol.PhaseStepReached || plan.Phase == protocol.PhaseQuarantined {
		if err := n.confirm(set, population, &plan); err != nil {
			return result, 0, err
		}
	}
	again = n.postponeConditions(&plan, again)
	result = protocol.NextBatchResult{
		Phase: plan.Phase, Message: plan.Message, Pods: plan.Pods, Queued: plan.Queued,
		Counts: plan.Counts, Hot: plan.Hot, FalseConditions: plan.FalseConditions, TrueConditions: plan.TrueConditions,
		Gone: gone(n.input.Rejected, &plan), GoneConditions: goneConditions, Stage: current,
	}
	result.ProgressDue, result.Again = n.progressDue, n.planAgain(&plan)
	return result, again, nil
}

// planAgain returns the time to the next plan of a sleeping run, or 0 if the run needs no such plan.
func (n *nextBatch) planAgain(plan *rollout.Plan) time.Duration {
	switch {
	case !plan.AwaitsBudget:
		return n.healthAgain
	case n.healthAgain == 0:
		return budgetInterval
	}
	return min(n.healthAgain, budgetInterval)
}

// confirm returns an error while the cache is known to be stale. A plan from a stale cache could let the run
// wait for a change that has happened already, or fill slots that other pods occupy. confirm adds the pods
// whose sidecars cannot start to the message of a waiting plan.
func (n *nextBatch) confirm(set *v1alpha1.SidecarSet, population []rollout.Pod, plan *rollout.Plan) error {
	if err := n.Current(); err != nil || plan.Phase != protocol.PhaseWaiting {
		return err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return err
	}
	if broken := rollout.FindBroken(version, population); broken.Count > 0 {
		plan.Message += fmt.Sprintf("; %d with a sidecar that cannot start, such as %s (%s)", broken.Count, broken.Example, broken.Detail)
	}
	return nil
}

// withoutPods returns the result of a plan whose pods must not be upgraded now. The reason is a pause, a failure
// of the rollout, a missing permit of the fleet, a RolloutFreeze, or a closed window. If the pods may be
// upgraded, ended is false.
func (n *nextBatch) withoutPods(ctx context.Context, set *v1alpha1.SidecarSet, population []rollout.Pod, plan *rollout.Plan, failure *protocol.Failure) (result protocol.NextBatchResult, ended bool, err error) {
	result = protocol.NextBatchResult{Phase: protocol.PhaseWaiting, Counts: plan.Counts, Hot: plan.Hot, Stage: n.resolved}
	n.progressDue = false
	switch {
	case n.input.Paused && (failure == nil || n.resolved.Aborted == nil):
		return protocol.NextBatchResult{Phase: protocol.PhasePaused, Message: plan.Message, Counts: plan.Counts}, true, nil
	case failure != nil:
		return n.failed(ctx, set, result, failure)
	}
	if n.Fleet != nil && stage.RollsBack(n.resolved, set.Generation) == nil && !fleet.Permitted(set, n.input.Permit) && fleet.Hold(plan) {
		result.Phase, result.FleetFault = plan.Phase, n.Fleet.Fault()
		result.Message = fleet.WithFault(plan.Message, result.FleetFault)
		return result, true, n.Current()
	}
	reason, until, err := n.frozen(ctx, set)
	if err != nil {
		return result, false, err
	}
	if reason == "" {
		n.progressDue = rollout.ProgressDue(set, plan, n.resolved)
		failure := rollout.Overdue(set, population, plan, n.resolved, n.input.Overdue)
		if failure == nil {
			return result, false, nil
		}
		return n.failed(ctx, set, result, failure)
	}
	plan.Freeze(reason)
	if plan.Phase != protocol.PhaseFrozen {
		return result, false, nil
	}
	result.Phase, result.Message, result.FrozenUntil = plan.Phase, plan.Message, until
	result.Again = n.healthAgain
	return result, true, n.Current()
}

// failed adds failure to result, and reports that the plan has ended. If the revision of a rollback cannot be
// used, failed changes the failure to a pause. A paused run has a failure only after an abort.
func (n *nextBatch) failed(ctx context.Context, set *v1alpha1.SidecarSet, result protocol.NextBatchResult, failure *protocol.Failure) (protocol.NextBatchResult, bool, error) {
	if err := n.checkRollback(ctx, set, failure); err != nil {
		return result, false, err
	}
	if n.input.Paused {
		result.Phase = protocol.PhasePaused
	}
	result.Message, result.Failure = failure.Reason, failure
	return result, true, nil
}

// postponeConditions removes the conditions with the value True from the plan while pods are being upgraded or
// become ready, because no upgrade depends on these conditions and their writes delay upgrades. Once all pods are
// upgraded and ready, or no pod was upgraded for a while, the plan keeps these conditions and is returned
// immediately. A rollout with conditions to write has not ended.
func (n *nextBatch) postponeConditions(plan *rollout.Plan, again time.Duration) time.Duration {
	quiet := n.input.Quiet || n.Clock.Since(n.began) >= idleTimeout
	upgrading := plan.Counts.Remaining+plan.Counts.Converging > 0
	if n.input.SkipTrueConditions || len(plan.Pods) > 0 || upgrading && !quiet {
		plan.TrueConditions = nil
	}
	if len(plan.TrueConditions) > 0 {
		again = 0
	}
	if len(plan.FalseConditions)+len(plan.TrueConditions) > 0 && plan.Phase.Ended() {
		plan.Phase = protocol.PhaseProgressing
	}
	return again
}

// awaitResets changes the phase of an ended plan to Waiting while the run resets standby twins or waits for pods
// to migrate. Once the migration is idle, the plan stays ended, because a hot upgrade to an earlier version may
// never finish.
func (n *nextBatch) awaitResets(plan *rollout.Plan) {
	if plan.Counts.Migrating > 0 && !n.input.MigrationIdle && (plan.Ended() || plan.Phase == protocol.PhaseNotUpdate) {
		plan.Phase = protocol.PhaseWaiting
	}
}

// batchDelay returns the time to wait for more pods before the plan is returned. The time is zero if the plan
// has enough pods for a batch. While no pod can be upgraded, batchDelay returns the time until the next
// check.
func (n *nextBatch) batchDelay(plan *rollout.Plan) time.Duration {
	switch {
	case len(plan.FalseConditions) > 0:
		return 0
	case plan.Phase == protocol.PhaseWaiting:
		n.firstFree = time.Time{}
		return n.idle.left(plan.Counts)
	case plan.Phase != protocol.PhaseProgressing || len(plan.Pods) == 0:
		return 0
	}
	delay := plan.BatchDelay()
	if delay == 0 {
		return 0
	}
	if n.firstFree.IsZero() {
		n.firstFree = n.Clock.Now()
	}
	return max(delay-n.Clock.Since(n.firstFree), 0)
}

// migrationDelay returns the time until the next check. If the migration waits for a plan, and a pod that can be
// reset was observed heartbeatInterval ago, migrationDelay returns zero, so that the plan wakes the migration.
// Without this plan, a rollout whose slots are released only by resets would wait forever.
func (n *nextBatch) migrationDelay(plan *rollout.Plan, again time.Duration) time.Duration {
	if plan.Phase != protocol.PhaseWaiting || !n.input.MigrationIdle || plan.Counts.Migrated == 0 {
		n.firstMigrated = time.Time{}
		return again
	}
	if n.firstMigrated.IsZero() {
		n.firstMigrated = n.Clock.Now()
	}
	again = min(again, max(heartbeatInterval-n.Clock.Since(n.firstMigrated), 0))
	if again == 0 {
		plan.Phase = protocol.PhaseProgressing
	}
	return again
}
