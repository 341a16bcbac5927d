package activities

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	defer a.keepAlive(ctx)()
	b := &resetBatch{
		Activities: a, input: input, done: setOf(input.Refused),
		set: a.liveSet(input.SidecarSet),
		end: a.Clock.Now().Add(resetTime), busy: a.Clock.Now(),
	}
	writing, done := withoutCancelRequest(ctx)
	defer done()
	b.writers, writing = a.newWriters(writing)
	b.reset(writing, input.Pods)
	err := a.poll(ctx, input.SidecarSet.Name, func() (time.Duration, error) { return b.look(writing) })
	if failed := b.writers.wait(); failed != nil {
		err = failed
	} else if endedEarly(ctx, err) {
		err = nil
	}
	return b.outcome.resets(b.tried), err
}

// resetBatch is one ResetBatch in progress.
type resetBatch struct {
	*Activities
	input   protocol.ResetBatchInput
	set     *liveSet
	end     time.Time
	outcome outcome
	tried   []protocol.PodReference
	// done pods are not looked at again: the cache may not show it yet.
	done    map[protocol.PodReference]bool
	writers *writers
	// busy is when a pod was migrating last.
	busy time.Time
}

// look resets what has migrated.
func (b *resetBatch) look(ctx context.Context) (again time.Duration, err error) {
	if ctx.Err() != nil {
		return 0, nil
	}
	found, err := b.migrating(ctx, b.set, b.done)
	if err != nil {
		return 0, err
	}
	now := b.Clock.Now()
	if found.others > 0 {
		b.busy = now
	}
	left := b.end.Sub(now)
	if left <= 0 || found.others == 0 && (!b.input.Upgrading || now.Sub(b.busy) >= resetIdleTimeout) {
		return 0, nil
	}
	b.reset(ctx, found.migrated)
	return min(left, heartbeatInterval), nil
}

func (b *resetBatch) reset(ctx context.Context, pods []protocol.PodReference) {
	b.tried = append(b.tried, pods...)
	for _, pod := range pods {
		b.done[pod] = true
		b.writers.begin(ctx, pod, &b.outcome, change{
			decide: func(ctx context.Context, pod *corev1.Pod) (decision, error) {
				return b.decideReset(ctx, b.set, pod)
			},
			write: b.resetPod,
		})
	}
}

func (a *Activities) decideReset(ctx context.Context, live *liveSet, pod *corev1.Pod) (decision, error) {
	set, err := live.get(ctx)
	if err != nil || set == nil {
		return decision{}, err
	}
	state, matched, err := a.stateOf(ctx, set, pod)
	if err != nil || !matched || !state.Migrated {
		return decision{}, err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return decision{refusal: err}, nil
	}
	patch, err := upgrade.Reset(pod, version, metav1.NewTime(a.Clock.Now()))
	return decision{patch: patch, refusal: err}, nil
}

func (a *Activities) resetPod(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	before := pod.DeepCopy()
	err := a.patchPod(ctx, pod, patch)
	switch {
	case err == nil:
		a.Events.Eventf(pod, nil, corev1.EventTypeNormal, eventResetSucceed, "Reset", "the old containers of hot-upgrade sidecars were emptied")
	case refused(err):
		a.Events.Eventf(before, nil, corev1.EventTypeWarning, eventResetFailed, "Reset", "%s", fmt.Sprintf("the API server refused to empty the old containers: %s", reason(err)))
	}
	return err
}
