package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/upgrade"
)

// Events on pods whose standby twin was to be reset.
const (
	eventResetSucceed = "ResetContainerSucceed"
	eventResetFailed  = "ResetContainerFailed"
)

// A reset batch goes on for resetTime with pods that have migrated meanwhile, and
// ends earlier once none has been migrating for resetIdleTimeout.
const (
	resetTime        = 2 * refillTime
	resetIdleTimeout = time.Second
)

// ResetBatch gives the standby twins of migrated pods the empty image, with one
// guarded write and one event for each pod: of those named, and for resetTime
// of those that have migrated by then. It advances no hash, and makes no pod
// unavailable, so it needs no budget. When it is cancelled it ends what it
// writes.
func (a *Activities) ResetBatch(ctx context.Context, input protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
	defer keepHeartbeating(ctx, a.Clock)()
	defer a.Metrics.time(changeReset, a.Clock)()
	writer := a.writer(changeReset)
	b := newResetBatch(writer, a.Events, input)
	writing, done := withoutCancelRequest(ctx)
	defer done()
	b.pool, writing = newPool(writing, a.Writers, nil)
	b.reset(writing, input.Pods)
	err := a.poller().poll(ctx, input.SidecarSet.Name, func() (time.Duration, error) { return b.look(writing) })
	if failed := b.pool.wait(); failed != nil {
		err = failed
	} else if endedEarly(ctx, err) {
		err = nil
	}
	return b.result(), err
}

func newResetBatch(writer *writer, recorder events.EventRecorder, input protocol.ResetBatchInput) *resetBatch {
	clock := writer.reader.clock
	return &resetBatch{
		reader: writer.reader, writer: writer, events: recorder, clock: clock,
		upgrading: input.Upgrading, set: writer.reader.recentSet(input.SidecarSet), done: setOf(input.Refused),
		skipped: map[protocol.PodReference]time.Time{}, end: clock.Now().Add(resetTime), busy: clock.Now(),
	}
}

// resetBatch is one ResetBatch in progress.
type resetBatch struct {
	reader *reader
	writer *writer
	pool   *pool
	events events.EventRecorder
	clock  clock.PassiveClock
	set    *recentSet
	// upgrading says that more pods will be migrating.
	upgrading bool
	end       time.Time
	outcome   outcome
	tried     []protocol.PodReference
	// done pods are not looked at again: the cache may not show it yet.
	done map[protocol.PodReference]bool
	// skipped is when pods were left alone last, by a cache that was behind or since
	// others kept writing them; zero while they may be tried again.
	skipped   map[protocol.PodReference]time.Time
	skippedMu sync.Mutex
	// busy is when a pod was migrating last.
	busy time.Time
}

// look resets what has migrated.
func (b *resetBatch) look(ctx context.Context) (again time.Duration, err error) {
	if ctx.Err() != nil {
		return 0, nil
	}
	b.retrySkipped()
	found, err := findMigrating(ctx, b.reader, b.set, b.done)
	if err != nil {
		return 0, err
	}
	now := b.clock.Now()
	if found.others > 0 {
		b.busy = now
	}
	left := b.end.Sub(now)
	if left <= 0 || found.others == 0 && (!b.upgrading || now.Sub(b.busy) >= resetIdleTimeout) {
		return 0, nil
	}
	b.reset(ctx, found.migrated)
	return min(left, heartbeatInterval), nil
}

func (b *resetBatch) reset(ctx context.Context, pods []protocol.PodReference) {
	for _, pod := range pods {
		b.try(pod)
		b.pool.submit(ctx, func(ctx context.Context) error {
			err := b.writer.apply(ctx, pod, &b.outcome, change{decide: b.decide, write: b.write})
			if !b.outcome.has(pod) {
				b.skip(pod)
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

func (b *resetBatch) skip(pod protocol.PodReference) {
	b.skippedMu.Lock()
	defer b.skippedMu.Unlock()
	b.skipped[pod] = b.clock.Now()
}

// retrySkipped has pods that were left alone looked at again, each once in
// heartbeatInterval: nobody else resets them while the batch goes on.
func (b *resetBatch) retrySkipped() {
	b.skippedMu.Lock()
	defer b.skippedMu.Unlock()
	for pod, at := range b.skipped {
		if !at.IsZero() && b.clock.Since(at) >= heartbeatInterval {
			b.done[pod], b.skipped[pod] = false, time.Time{}
		}
	}
}

func (b *resetBatch) decide(ctx context.Context, pod *corev1.Pod) (decision, error) {
	set, err := b.set.get(ctx)
	if err != nil || set == nil {
		return decision{}, err
	}
	state, matched, err := b.reader.state(ctx, set, pod)
	if err != nil || !matched || !state.Migrated {
		return decision{}, err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return decision{refusal: err}, nil
	}
	patch, err := upgrade.Reset(pod, version, metav1.NewTime(b.clock.Now()))
	return decision{patch: patch, refusal: err}, nil
}

func (b *resetBatch) write(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	before := pod.DeepCopy()
	err := b.writer.patchPod(ctx, pod, patch)
	switch {
	case err == nil:
		b.events.Eventf(pod, nil, corev1.EventTypeNormal, eventResetSucceed, "Reset", "the old containers of hot-upgrade sidecars were emptied")
	case refused(err):
		b.events.Eventf(before, nil, corev1.EventTypeWarning, eventResetFailed, "Reset", "%s", fmt.Sprintf("the API server refused to empty the old containers: %s", reason(err)))
	}
	return err
}

func (b *resetBatch) result() protocol.ResetBatchResult {
	reset, failed := len(b.outcome.written), b.outcome.failures(b.tried)
	return protocol.ResetBatchResult{Reset: reset, Skipped: len(b.tried) - reset - len(failed), Failed: failed}
}
