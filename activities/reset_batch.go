package activities

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/upgrade"
)

// Reasons of the events on pods about the reset of a standby twin.
const (
	eventResetSucceed = "ResetContainerSucceed"
	eventResetFailed  = "ResetContainerFailed"
)

// A reset batch continues for resetTime with pods that migrate during the batch. The batch ends earlier once no
// pod has been migrating for resetIdleTimeout.
const (
	resetTime        = 2 * refillTime
	resetIdleTimeout = time.Second
)

// ResetBatch writes the empty image into the standby twins of migrated pods, with one write and one event for
// each pod. The batch resets the pods of the input first, and then, for resetTime, pods that migrate during the
// batch. A reset does not change the hash of the pod. A reset restarts the standby twin, so maxUnavailable limits
// the resets, except that 0 counts as 1. A pod that needed a slot for the upgrade still occupies this slot. The
// batch resets no pod without an acknowledged heartbeat, without the Lease of the SidecarSet, or before the cache
// shows the writes of other workers. A cancelled batch finishes the writes in flight.
func (a *Activities) ResetBatch(ctx context.Context, input protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
	b := a.newResetBatch(input)
	ctx, stop := b.deadline.keep(ctx, answeredHeartbeat(ctx, &outcome{}))
	defer stop()
	return b.resetAll(ctx, input.SidecarSet)
}

func (b *resetBatch) resetAll(ctx context.Context, set protocol.SetReference) (protocol.ResetBatchResult, error) {
	defer b.Metrics.time(changeReset, b.Clock)()
	// A run may have no pods to upgrade, so the batch itself acquires the Lease.
	if err := b.acquireLease(ctx); err != nil {
		return b.result(), err
	}
	current, listed, err := b.writesOfOthers(ctx, set)
	if err != nil {
		return b.result(), err
	}
	if !current {
		b.before.add(listed)
	}
	pool, writing := newPool(ctx, b.Writers)
	b.pool = pool
	err = b.poll(writing, set.Name, func() (time.Duration, error) { return b.check(writing) })
	if err = pool.finish(err); endedEarly(ctx, err) {
		err = nil
	}
	return b.result(), err
}

func (b *resetBatch) acquireLease(ctx context.Context) error {
	if b.fence.lease.run == "" {
		return nil
	}
	// After acquireLease, resetAll waits for the writes of the previous holder.
	return b.fence.lease.acquire(ctx, func(context.Context) error { return nil })
}

func (a *Activities) newResetBatch(input protocol.ResetBatchInput) *resetBatch {
	now := a.Clock.Now()
	return &resetBatch{
		writer: a.writer(changeReset), upgrading: input.Upgrading, queue: input.Pods, fence: a.newResetFence(input.SidecarSet, input.Run), rejected: input.Rejected.Set(),
		deadline: newWriteDeadline(a.Clock), before: a.unseenWrites(nil),
		done: map[protocol.PodReference]bool{}, skipped: map[protocol.PodReference]time.Time{}, refused: map[protocol.PodReference]bool{}, end: now.Add(resetTime), busy: now,
	}
}

// resetBatch is the state of one ResetBatch activity in progress.
type resetBatch struct {
	*writer
	pool  *pool
	fence *fence
	// upgrading is set if an upgrade batch is running, because hot pods migrate after their upgrade.
	upgrading bool
	// queue contains the pods of the input that the batch has not reset yet.
	queue    []protocol.PodReference
	end      time.Time
	deadline *writeDeadline
	// before contains the writes of other workers that the cache does not show yet.
	before  *unseenWrites
	outcome outcome
	tried   []protocol.PodReference
	// rejected contains pods that earlier batches could not reset. done contains pods that this batch has
	// tried to reset, because the cache may not show the reset yet. The batch starts no reset of a pod in
	// rejected or done, except that the pods of the input are reset once.
	rejected map[protocol.Fingerprint]bool
	done     map[protocol.PodReference]bool
	// skipped contains the time at which a pod was skipped, because the cache was stale or because of repeated
	// conflicts with other clients. The time is zero once the batch may reset the pod again.
	skipped map[protocol.PodReference]time.Time
	// refused contains the pods whose reset the API server has rejected during this batch.
	refused   map[protocol.PodReference]bool
	skippedMu sync.Mutex
	// busy is the last time at which a pod was migrating.
	busy time.Time
}

// check starts the resets of pods that have migrated, within the free slots. again is the time until the next
// check. If again is 0, the batch ends.
func (b *resetBatch) check(ctx context.Context) (again time.Duration, err error) {
	if ctx.Err() != nil || b.deadline.left() <= 0 {
		return 0, nil
	}
	if unseen, err := b.before.count(ctx); err != nil || unseen > 0 || b.Current() != nil {
		return max(0, min(b.end.Sub(b.Clock.Now()), heartbeatInterval)), err
	}
	set, err := b.fence.permitted(ctx)
	if err != nil {
		return 0, err
	}
	b.retrySkipped()
	found, err := b.findMigrating(ctx, set, b.isDone)
	if err != nil {
		return 0, err
	}
	slots := b.slots(&found)
	reset := b.queue[:min(len(b.queue), slots)]
	b.reset(reset)
	b.queue = b.queue[len(reset):]
	now, others := b.Clock.Now(), b.others(&found)
	if others > 0 {
		b.busy = now
	}
	left := b.end.Sub(now)
	if left <= 0 || len(b.queue)+others == 0 && (!b.upgrading || now.Sub(b.busy) >= resetIdleTimeout) {
		return 0, nil
	}
	migrated := slices.DeleteFunc(found.migrated, b.isDone)
	b.reset(migrated[:min(len(migrated), slots-len(reset))])
	return min(left, heartbeatInterval), nil
}

// others returns the number of migrating pods that are not in done or rejected.
func (b *resetBatch) others(found *migrating) (n int) {
	for i := range found.population {
		if pod := &found.population[i]; pod.Migrating && !b.isDone(pod.Reference()) {
			n++
		}
	}
	return n
}

// slots returns the number of further pods that may be reset now.
func (b *resetBatch) slots(found *migrating) int {
	b.skippedMu.Lock()
	defer b.skippedMu.Unlock()
	return found.slots(func(pod protocol.PodReference) bool {
		return b.done[pod] && !b.refused[pod] && b.skipped[pod].IsZero()
	})
}

func (b *resetBatch) isDone(pod protocol.PodReference) bool {
	return b.done[pod] || b.rejected[protocol.FingerprintOf(pod.UID)]
}

func (b *resetBatch) reset(pods []protocol.PodReference) {
	for _, pod := range pods {
		b.try(pod)
		b.pool.submit(func(ctx context.Context) error {
			result, err := b.apply(ctx, pod, &b.outcome, change{wanted: b.wanted, decide: b.decide, write: b.write})
			switch result {
			case resultSkipped:
				b.skip(pod)
			case resultRejected:
				b.reject(pod)
			}
			return err
		})
	}
}

func (b *resetBatch) try(pod protocol.PodReference) {
	b.skippedMu.Lock()
	defer b.skippedMu.Unlock()
	if _, again := b.skipped[pod]; !again {
		b.tried = append(b.tried, pod)
	}
	b.done[pod] = true
}

func (b *resetBatch) reject(pod protocol.PodReference) {
	b.skippedMu.Lock()
	defer b.skippedMu.Unlock()
	b.refused[pod] = true
}

func (b *resetBatch) skip(pod protocol.PodReference) {
	b.skippedMu.Lock()
	defer b.skippedMu.Unlock()
	b.skipped[pod] = b.Clock.Now()
}

// retrySkipped removes a skipped pod from done after heartbeatInterval. This batch must retry the reset,
// because only one reset batch runs at a time.
func (b *resetBatch) retrySkipped() {
	b.skippedMu.Lock()
	defer b.skippedMu.Unlock()
	for pod, at := range b.skipped {
		if !at.IsZero() && b.Clock.Since(at) >= heartbeatInterval {
			b.done[pod], b.skipped[pod] = false, time.Time{}
		}
	}
}

// wanted returns the SidecarSet. wanted returns an error after the deadline, if another worker leads, if the run
// does not hold the Lease, and if the SidecarSet is gone. A pause does not stop resets.
func (b *resetBatch) wanted(ctx context.Context) (*v1alpha1.SidecarSet, error) {
	if b.deadline.left() <= 0 {
		return nil, stopped("")
	}
	if err := b.Limit.check(); err != nil {
		return nil, err
	}
	return b.fence.permitted(ctx)
}

func (b *resetBatch) decide(ctx context.Context, pod *corev1.Pod) (decision, error) {
	set, err := b.wanted(ctx)
	if err != nil {
		return decision{}, err
	}
	state, matched, err := b.state(ctx, set, pod)
	if err != nil || !matched || !state.Migrated {
		return decision{}, err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return decision{rejection: err}, nil
	}
	patch, err := upgrade.Reset(pod, version, metav1.NewTime(b.Clock.Now()))
	return decision{patch: patch, set: set, rejection: err}, nil
}

func (b *resetBatch) write(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	before := pod.DeepCopy()
	err := b.patchPod(ctx, pod, patch)
	switch {
	case err == nil:
		b.Events.Eventf(pod, nil, corev1.EventTypeNormal, eventResetSucceed, "Reset", "the old containers of hot-upgrade sidecars were emptied")
	case rejected(err):
		b.Events.Eventf(before, nil, corev1.EventTypeWarning, eventResetFailed, "Reset", "%s", fmt.Sprintf("the API server rejected the reset of the old containers: %s", reason(err)))
	}
	return err
}

func (b *resetBatch) result() protocol.ResetBatchResult {
	reset, failed := len(b.outcome.written), b.outcome.failures(b.tried)
	return protocol.ResetBatchResult{Reset: reset, Skipped: len(b.tried) - reset - len(failed), Rejected: failed}
}
