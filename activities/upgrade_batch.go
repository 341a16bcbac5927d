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
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/upgrade"
)

// refillTime is how long a batch goes on with its reserve: long enough to be
// worth its events, short enough that the history shows how far a run is.
const refillTime = 30 * time.Second

// UpgradeBatch upgrades the chosen pods, each with one guarded write: those of
// both lists, in order, for refillTime and as long as the cluster has room for
// them by a plan made now, from the set as the API server has it. It ends early
// when nothing moves, or when only pods that it does not hold could, and stops
// filling slots when the server does not hear it any more. While only the fleet
// has no room it stays for longer, NextBatchPoll at most. Pods that are gone,
// changed, or upgraded already are no errors; a pod whose write the API server
// refuses is reported and stops nothing. It fails only when the API server
// cannot be reached, and may then be called again. When it is cancelled it ends
// what it writes and says what it wrote.
func (a *Activities) UpgradeBatch(ctx context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	defer a.Metrics.time(changeUpgrade, a.Clock)()
	b := a.newUpgradeBatch(input, leaseIdentity(ctx, input.Run))
	ctx, stop := b.deadline.keep(ctx, answeredHeartbeat(ctx, &b.outcome))
	defer stop()
	ctx, leave, err := a.Fleet.within(ctx)
	defer leave()
	if err != nil {
		return protocol.UpgradeBatchResult{}, err
	}
	defer a.Fleet.leave(b, input.SidecarSet.Name)
	err = b.run(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errNotLeading) {
		err = errNotLeading
	}
	return b.result(), err
}

func (a *Activities) newUpgradeBatch(input protocol.UpgradeBatchInput, run string) *upgradeBatch {
	writer := a.writer(changeUpgrade)
	reader := writer.reader
	b := &upgradeBatch{
		reader: reader, writer: writer, writers: a.Writers, poller: a.poller(), clock: a.Clock,
		input: input, deadline: newWriteDeadline(a.Clock),
		fence: newFence(reader, a.lease(input.SidecarSet, run), a.Fleet, input.Generation), fleet: a.Fleet, countFleet: a.countFleet,
		left: slices.Concat(input.Pods, input.Reserve), taken: map[protocol.PodReference]bool{},
		before: reader.unseenWrites(input.Written), own: reader.unseenWrites(nil), idle: newIdleTimer(a.Clock),
	}
	b.extend()
	return b
}

// upgradeBatch is one UpgradeBatch in progress.
type upgradeBatch struct {
	reader *reader
	writer *writer
	// writers is how many pods are written at a time, by the pool.
	writers int
	pool    *pool
	poller  *poller
	clock   clock.PassiveClock
	input   protocol.UpgradeBatchInput
	// end is moved while the fleet has no room.
	end      atomic.Pointer[time.Time]
	deadline *writeDeadline
	fence    *fence
	// fleet is nil when sets have budgets of their own alone.
	fleet      *FleetBudget
	countFleet func(context.Context, time.Duration)
	outcome    outcome
	// left pods are still to be upgraded, in order; tried ones are not, and
	// taken holds the same.
	left, tried []protocol.SelectedPod
	taken       map[protocol.PodReference]bool
	// Writes before the batch, and its own, that the cache does not show yet.
	before, own *unseenWrites
	// current is set while the cache is known to show all that others wrote; without, listed
	// are the resourceVersions that the API server had of the pods.
	current bool
	listed  map[protocol.PodReference]string
	idle    *idleTimer
}

func (b *upgradeBatch) run(ctx context.Context) error {
	attempt := activity.GetInfo(ctx).Attempt
	b.fence.lease.task = activity.GetInfo(ctx).TaskToken
	if err := b.acquireLease(ctx, attempt); err != nil {
		if endedEarly(ctx, err) {
			return nil
		}
		return err
	}
	// A write that was begun must end, or nobody would know what it did.
	writing, done := withoutCancelRequest(ctx)
	defer done()
	b.pool, writing = newPool(writing, b.writers, nil)
	if attempt > 1 {
		if err := b.catchUp(writing); err != nil {
			return err
		}
		activity.GetLogger(ctx).Info("took a lost batch up again", "sidecarset", b.input.SidecarSet.Name, "generation", b.input.Generation,
			"written", len(b.outcome.written), "left", len(b.left))
	}
	b.current, b.listed = false, nil
	err := b.poller.poll(ctx, b.input.SidecarSet.Name, func() (time.Duration, error) { return b.refill(writing) })
	if failed := b.pool.wait(); failed != nil {
		return failed
	}
	if endedEarly(ctx, err) {
		return nil
	}
	return err
}

// timeLeft is how long slots may still be filled.
func (b *upgradeBatch) timeLeft() time.Duration {
	return min(b.end.Load().Sub(b.clock.Now()), b.deadline.left())
}

// extend has the batch go on for refillTime from now.
func (b *upgradeBatch) extend() { b.end.Store(new(b.clock.Now().Add(refillTime))) }

// refill upgrades as many pods as the cluster has room for.
func (b *upgradeBatch) refill(ctx context.Context) (again time.Duration, err error) {
	left := b.timeLeft()
	if left <= 0 || len(b.left) == 0 || ctx.Err() != nil {
		return 0, nil
	}
	set, stopped, err := b.fence.check(ctx)
	if stopped != "" {
		b.outcome.stop(stopped)
	}
	if err != nil || stopped != "" {
		return 0, err
	}
	// Caches see writes in their order: one that shows the batch before this
	// one shows all batches before.
	if unseen, err := b.before.count(ctx); err != nil || unseen > 0 {
		return min(left, heartbeatInterval), err
	}
	counts, others, err := b.fill(ctx, set)
	if err != nil || others || len(b.left) == 0 {
		return 0, err
	}
	return min(left, b.idle.left(counts)), nil
}

// fill plans anew and has pods upgraded. others says that only pods which the
// batch does not hold may move.
func (b *upgradeBatch) fill(ctx context.Context, set *v1alpha1.SidecarSet) (counts protocol.Counts, others bool, err error) {
	unseen, err := b.notInCache(ctx)
	if err != nil {
		return counts, false, err
	}
	population, err := b.reader.population(ctx, set)
	if err != nil {
		return counts, false, err
	}
	plan, err := rollout.Next(set, population, setOf(b.input.Refused))
	if err != nil {
		return counts, false, err
	}
	refill, err := b.withinFleet(ctx, set, &plan, unseen)
	if err != nil {
		return counts, false, err
	}
	b.left = refill.Left
	b.upgrade(ctx, refill.Now)
	if unseen > 0 || len(refill.Now) > 0 {
		b.idle.reset()
	}
	return plan.Counts, refill.Others, nil
}

// withinFleet is what the batch may do next, as far as the fleet has room for it.
// A batch that waits for the fleet stays: another one could do no more.
func (b *upgradeBatch) withinFleet(ctx context.Context, set *v1alpha1.SidecarSet, plan *rollout.Plan, unseen int) (rollout.Refill, error) {
	refill := plan.Refill(b.left, b.taken, unseen)
	if b.fleet == nil {
		return refill, nil
	}
	moving, err := b.reader.moving(set)
	if err != nil {
		return refill, err
	}
	more := 0
	for _, pod := range refill.Now {
		if !pod.Unready {
			more++
		}
	}
	b.countFleet(ctx, recountAge)
	granted := b.fleet.ask(b, set, moving+unseen, more)
	if granted == more {
		b.outcome.wait("")
		return refill, nil
	}
	b.outcome.wait(b.fleet.waiting())
	b.idle.reset()
	if !b.fleet.crowded() {
		b.extend()
	}
	plan.Free = min(plan.Free, unseen+granted)
	refill = plan.Refill(b.left, b.taken, unseen)
	refill.Others = false
	return refill, nil
}

// notInCache counts the pods that were written, or are being written, and that
// the cache does not show so.
func (b *upgradeBatch) notInCache(ctx context.Context) (int, error) {
	// In this order, one that ends meanwhile counts twice rather than never.
	pending := int(b.pool.pending.Load())
	b.own.add(b.outcome.newWrites())
	unseen, err := b.own.count(ctx)
	return pending + unseen, err
}

// upgrade has pods taken through their upgrade while there is time.
func (b *upgradeBatch) upgrade(ctx context.Context, chosen []protocol.SelectedPod) {
	for _, one := range chosen {
		b.try(one)
		decide := func(ctx context.Context, pod *corev1.Pod) (decision, error) { return b.decide(ctx, one, pod) }
		b.pool.submit(ctx, func(ctx context.Context) error {
			return b.writer.apply(ctx, one.PodReference, &b.outcome, change{decide: decide, write: b.writer.patchPod})
		})
	}
}

// decide looks at a chosen pod as it is now.
func (b *upgradeBatch) decide(ctx context.Context, chosen protocol.SelectedPod, pod *corev1.Pod) (decision, error) {
	if b.timeLeft() <= 0 {
		return decision{}, nil
	}
	set, stopped, err := b.fence.check(ctx)
	if err != nil {
		return decision{}, err
	}
	if stopped != "" {
		b.outcome.stop(stopped)
		return decision{}, nil
	}
	state, matched, err := b.reader.state(ctx, set, pod)
	switch {
	case err != nil || !matched:
		return decision{}, err
	case state.Updated:
		return decision{done: true}, nil
	}
	if due, err := stillDue(set, chosen, pod, state); err != nil || !due {
		return decision{}, err
	}
	patch, err := b.patch(set, pod)
	return decision{patch: patch, refusal: err}, nil
}

// stillDue reports whether a pod may be upgraded as it was chosen to be: since
// then it may have become ready or have left the update selector (SPEC §7.2).
func stillDue(set *v1alpha1.SidecarSet, chosen protocol.SelectedPod, pod *corev1.Pod, state podstate.State) (bool, error) {
	if !state.Upgradable || state.Waits() || chosen.Unready && state.Ready {
		return false, nil
	}
	return rollout.Selected(set.Spec.UpdateStrategy.Selector, pod)
}

func (b *upgradeBatch) patch(set *v1alpha1.SidecarSet, pod *corev1.Pod) ([]byte, error) {
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	name, err := revision.Current(set)
	if err != nil {
		return nil, err
	}
	target := upgrade.Target{Version: version, Revision: name, SetVersion: set.ResourceVersion, Metadata: set.Spec.PatchPodMetadata}
	return upgrade.Patch(pod, target, metav1.NewTime(b.clock.Now()))
}

func (b *upgradeBatch) try(chosen protocol.SelectedPod) {
	b.tried = append(b.tried, chosen)
	b.taken[chosen.PodReference] = true
}

// result lists the pods in the order they were chosen in.
func (b *upgradeBatch) result() protocol.UpgradeBatchResult {
	tried := make([]protocol.PodReference, 0, len(b.tried))
	for _, pod := range b.tried {
		tried = append(tried, pod.PodReference)
	}
	result := protocol.UpgradeBatchResult{Written: b.outcome.writes(tried), Failed: b.outcome.failures(tried), Stopped: b.outcome.stopped}
	result.Skipped = len(tried) - len(result.Written) - len(result.Failed)
	return result
}
