package activities

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/upgrade"
)

// refillTime is the maximum time that a batch continues with queued pods. A longer time reduces the number of
// events in the history. A shorter time shows the progress of the run more often.
const refillTime = 30 * time.Second

// UpgradeBatch upgrades the chosen pods. Each write passes the write gate. The batch upgrades Pods first. Then,
// for refillTime, the batch upgrades the queued pods in order, whenever a new plan has free slots. The batch ends
// early when nothing changes, or when only pods outside the batch can be upgraded. The batch fills no slot
// without an acknowledged heartbeat. If only the cluster-wide limit has no free slot, the batch waits longer, at
// most for NextBatchPoll. The batch skips pods that are gone, changed or upgraded already. The batch reports a
// rejected pod, and continues with the other pods. UpgradeBatch returns an error if the API server cannot be read
// or written, or if the cluster-wide limit requires a leader and the worker is not the leader. Temporal then
// retries the activity. A cancelled batch finishes the writes in flight, and returns these writes.
func (a *Activities) UpgradeBatch(ctx context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	b := a.newUpgradeBatch(input, leaseIdentity(ctx, input.Run))
	ctx, stop := b.deadline.keep(ctx, answeredHeartbeat(ctx, &b.outcome))
	defer stop()
	return b.upgradeAll(ctx)
}

func (b *upgradeBatch) upgradeAll(ctx context.Context) (protocol.UpgradeBatchResult, error) {
	defer b.Metrics.time(changeUpgrade, b.Clock)()
	ctx, leave, err := b.Limit.within(ctx)
	defer leave()
	if err != nil {
		return protocol.UpgradeBatchResult{}, err
	}
	defer b.Limit.leave(b, b.input.SidecarSet.Name)
	err = b.run(ctx, activity.GetInfo(ctx).Attempt)
	if err != nil && errors.Is(context.Cause(ctx), errNotLeading) {
		err = errNotLeading
	}
	return b.result(), err
}

func (a *Activities) newUpgradeBatch(input protocol.UpgradeBatchInput, run string) *upgradeBatch {
	b := &upgradeBatch{
		writer: a.writer(changeUpgrade), input: input, queued: &queuedPods{}, deadline: newWriteDeadline(a.Clock),
		fence: a.newFence(a.lease(input.SidecarSet, run), input.Generation),
		left:  slices.Concat(input.Pods, input.Queued), isTried: map[protocol.PodReference]bool{},
		before: a.unseenWrites(input.Written), own: a.unseenWrites(nil), idle: newIdleTimer(a.Clock),
	}
	b.fence.stage, b.began = input.Stage, a.Clock.Now()
	b.extend()
	return b
}

// upgradeBatch is the state of one UpgradeBatch activity in progress.
type upgradeBatch struct {
	*writer
	pool  *pool
	input protocol.UpgradeBatchInput
	// end is the time at which the batch stops filling slots. The batch extends end while the cluster-wide
	// limit has no slot.
	end      atomic.Pointer[time.Time]
	deadline *writeDeadline
	fence    *fence
	outcome  outcome
	// left lists the pods to upgrade, in order. tried lists the pods that were tried, and isTried contains the
	// pods of tried as keys. The value in isTried is false if the pod was not written, because the write was
	// rejected or not necessary.
	left, tried []protocol.SelectedPod
	isTried     map[protocol.PodReference]bool
	// before contains the unseen writes of earlier batches. own contains the unseen writes of
	// this batch.
	before, own *unseenWrites
	// cacheCurrent is set while the cache is known to show all writes of other processes.
	// Otherwise, listed contains the resourceVersions of the pods from the API server.
	cacheCurrent bool
	listed       map[protocol.PodReference]string
	idle         *idleTimer
	// queued contains the pods that the batch upgrades in the slots of rejected pods, until the next plan.
	queued *queuedPods
	// quiet is set once nothing has changed for idleTimeout.
	quiet bool
	// failing is set once the rollout has failed, for example because the failed pods exceed the
	// limit of the stage.
	failing bool
	// began is the time at which the worker began the batch.
	began time.Time
}

func (b *upgradeBatch) run(ctx context.Context, attempt int32) error {
	b.fence.lease.task = activity.GetInfo(ctx).TaskToken
	if err := b.acquireLease(ctx, attempt); err != nil {
		// A later attempt must return the error and no result, because the writes of earlier attempts are not
		// known yet. If a cancelled batch has no result, the run counts all pods of the batch as written.
		if attempt == 1 && endedEarly(ctx, err) {
			return nil
		}
		return err
	}
	if attempt > 1 {
		if err := b.catchUp(ctx); err != nil {
			return err
		}
		activity.GetLogger(ctx).Info("resumed a lost batch", "sidecarset", b.input.SidecarSet.Name, "generation", b.input.Generation,
			"written", len(b.outcome.written), "left", len(b.left))
	}
	b.cacheCurrent, b.listed = false, nil
	pool, writing := newPool(ctx, b.Writers)
	b.pool = pool
	err := b.poll(writing, b.input.SidecarSet.Name, func() (time.Duration, error) { return b.refill(writing) })
	err = pool.finish(err)
	b.endQueued()
	if endedEarly(ctx, err) {
		b.outcome.stop(err)
		return nil
	}
	return err
}

// timeLeft returns the time in which the batch may still fill slots.
func (b *upgradeBatch) timeLeft() time.Duration {
	return min(b.end.Load().Sub(b.Clock.Now()), b.deadline.left())
}

// extend lets the batch continue for refillTime from now.
func (b *upgradeBatch) extend() { b.end.Store(new(b.Clock.Now().Add(refillTime))) }

// refill starts the upgrades of as many pods as there are free slots, and returns the time until the next
// refill. If again is 0, the batch ends.
func (b *upgradeBatch) refill(ctx context.Context) (again time.Duration, err error) {
	left := b.timeLeft()
	if left <= 0 || len(b.left) == 0 || ctx.Err() != nil {
		return 0, nil
	}
	set, err := b.fence.check(ctx)
	if err != nil {
		return 0, err
	}
	// The cache shows writes in the order in which the API server accepted the writes. A cache that shows the
	// writes of the last batch therefore shows the writes of all earlier batches.
	if unseen, err := b.before.count(ctx); err != nil || unseen > 0 {
		return min(left, heartbeatInterval), err
	}
	if b.Current() != nil {
		return min(left, heartbeatInterval), nil
	}
	counts, others, err := b.fill(ctx, set)
	if err != nil || others || len(b.left) == 0 {
		return 0, err
	}
	idle := b.idle.left(counts)
	b.quiet = idle == 0
	return min(left, idle), nil
}

// fill makes a new plan and starts upgrades. others is set if only pods outside the batch can be upgraded, or
// if the rollout has failed.
func (b *upgradeBatch) fill(ctx context.Context, set *v1alpha1.SidecarSet) (counts protocol.Counts, others bool, err error) {
	b.endQueued()
	for _, pod := range b.outcome.releasedPods() {
		b.isTried[pod] = false
	}
	unseen, err := b.notInCache(ctx)
	if err != nil {
		return counts, false, err
	}
	population, err := b.population(ctx, set)
	if err != nil {
		return counts, false, err
	}
	b.observeHealth(set, population, b.input.Stage)
	plan, failure, err := b.planPods(ctx, set, population, markRejected(population, b.input.Rejected), b.input.Stage)
	if err != nil || failure != nil {
		b.failing = failure != nil
		return counts, failure != nil, err // the next plan stops the rollout
	}
	refill, err := b.withinLimit(ctx, set, &plan, unseen)
	if err != nil {
		return counts, false, err
	}
	b.left = refill.Left
	b.queued = &queuedPods{pods: refill.SlotWanted}
	b.upgrade(refill.Now)
	if unseen > 0 || len(refill.Now) > 0 {
		b.idle.reset()
	}
	return plan.Counts, refill.OnlyOthers, nil
}

// withinLimit reduces a refill to the slots that the cluster-wide limit permits. withinLimit extends a batch that
// waits for the limit, because a new batch would also have to wait.
func (b *upgradeBatch) withinLimit(ctx context.Context, set *v1alpha1.SidecarSet, plan *rollout.Plan, unseen int) (rollout.Refill, error) {
	refill := plan.Refill(b.left, b.isTried, unseen)
	if b.Limit == nil {
		return refill, nil
	}
	inFlight, err := b.inFlight(set)
	if err != nil {
		return refill, err
	}
	more := 0
	for _, pod := range refill.Now {
		if !pod.Unready {
			more++
		}
	}
	b.countShares(ctx, recountAge)
	slots := b.Limit.request(b, set, inFlight+unseen, more)
	if slots == more {
		b.outcome.wait("")
		return refill, nil
	}
	b.outcome.wait(b.Limit.waiting())
	b.idle.reset()
	if !b.Limit.crowded() {
		b.extend()
	}
	plan.OpenSlots = min(plan.OpenSlots, unseen+slots)
	refill = plan.Refill(b.left, b.isTried, unseen)
	refill.OnlyOthers = false
	return refill, nil
}

// notInCache counts the pods that this batch has written or is writing, and whose write the cache does not show
// yet.
func (b *upgradeBatch) notInCache(ctx context.Context) (int, error) {
	// The pending writes are counted first. A write that ends between the two counts is therefore
	// counted twice. In the opposite order, the write would not be counted at all.
	pending := int(b.pool.pending.Load())
	b.own.add(b.outcome.newWrites())
	unseen, err := b.own.count(ctx)
	return pending + unseen, err
}

func (b *upgradeBatch) upgrade(chosen []protocol.SelectedPod) {
	for _, one := range chosen {
		b.try(one)
		queued := b.queued
		b.pool.submit(func(ctx context.Context) error { return b.upgradeInSlot(ctx, one, queued) })
	}
}

// wanted returns the SidecarSet while this batch may upgrade the pods of the SidecarSet, and an error
// otherwise.
func (b *upgradeBatch) wanted(ctx context.Context) (*v1alpha1.SidecarSet, error) {
	if b.timeLeft() <= 0 {
		return nil, stopped("")
	}
	return b.fence.check(ctx)
}

// decide returns the next write to a chosen pod based on the current state of the pod.
func (b *upgradeBatch) decide(ctx context.Context, chosen protocol.SelectedPod, pod *corev1.Pod) (decision, error) {
	set, err := b.wanted(ctx)
	if err != nil {
		return decision{}, err
	}
	state, matched, err := b.state(ctx, set, pod)
	switch {
	case err != nil || !matched:
		return decision{}, err
	case state.Updated:
		return decision{done: true}, nil
	}
	if due, err := stillDue(set, chosen, pod, state); err != nil || !due {
		return decision{}, err
	}
	return b.nextWrite(set, pod)
}

// stillDue reports whether a chosen pod may still be upgraded. Since the choice, the pod may have become ready
// and need a slot, or the update selector may no longer select the pod (SPEC §7.2).
func stillDue(set *v1alpha1.SidecarSet, chosen protocol.SelectedPod, pod *corev1.Pod, state podstate.State) (bool, error) {
	if !state.Upgradable || state.Waits() || chosen.Unready && state.NeedsSlot() {
		return false, nil
	}
	return rollout.Selected(set.Spec.UpdateStrategy.Selector, pod)
}

// nextWrite returns the next write to a pod. A pod whose containers are resized is written three
// times: the start of the resize, the resize, and the upgrade.
func (b *upgradeBatch) nextWrite(set *v1alpha1.SidecarSet, pod *corev1.Pod) (decision, error) {
	target, err := targetOf(set)
	if err != nil {
		return decision{set: set, rejection: err}, nil
	}
	resize, err := upgrade.Resize(pod, target)
	switch {
	case err != nil:
		return decision{set: set, rejection: err}, nil
	case resize.Begin != nil:
		return decision{set: set, patch: resize.Begin, more: true}, nil
	case resize.Resize != nil:
		return decision{set: set, patch: resize.Resize, more: true, resize: true}, nil
	}
	now := metav1.NewTime(b.Clock.Now())
	// Empty sets the empty image in a standby twin. A later batch upgrades the pod, after the kubelet has
	// restarted the twin.
	patch, err := upgrade.Empty(pod, target, now)
	if err == nil && patch == nil {
		patch, err = upgrade.Patch(pod, target, now)
	}
	return decision{set: set, patch: patch, rejection: err}, nil
}

// targetOf returns the current content of a SidecarSet as the target of upgrades.
func targetOf(set *v1alpha1.SidecarSet) (upgrade.Target, error) {
	version, err := podstate.NewVersion(set)
	if err != nil {
		return upgrade.Target{}, err
	}
	name, err := revision.Current(set)
	return upgrade.Target{Version: version, Revision: name, SetVersion: set.ResourceVersion, Metadata: set.Spec.PatchPodMetadata}, err
}

func (b *upgradeBatch) try(chosen protocol.SelectedPod) {
	b.tried = append(b.tried, chosen)
	b.isTried[chosen.PodReference] = true
}

// result returns the result of the batch. The lists of pods have the order in which the batch tried the pods.
func (b *upgradeBatch) result() protocol.UpgradeBatchResult {
	tried := make([]protocol.PodReference, 0, len(b.tried))
	for _, pod := range b.tried {
		tried = append(tried, pod.PodReference)
	}
	result := protocol.UpgradeBatchResult{Written: b.outcome.writes(tried), Rejected: b.outcome.failures(tried), Stopped: b.outcome.stopped, Frozen: b.outcome.frozen, Failing: b.failing, Quiet: b.quiet}
	if b.input.Stage.ProgressDeadline() > 0 {
		result.Limited, result.Took = b.outcome.limited(), b.Clock.Since(b.began)
	}
	// A pod whose resize was reverted counts both as written and as rejected.
	result.Skipped = len(tried) - len(result.Written) - len(result.Rejected) + len(b.outcome.lost)
	return result
}
