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

// Events on pods whose old twin was to be emptied.
const (
	eventResetSucceed = "ResetContainerSucceed"
	eventResetFailed  = "ResetContainerFailed"
)

// resetTime is how long a batch goes on with pods that have migrated meanwhile;
// it ends earlier once none has been migrating for a lull.
const (
	resetTime = 15 * time.Second
	lull      = time.Second
)

// ResetBatch gives the old twins of migrated pods the empty image, with one
// guarded write and one event for each pod: of those named, and for resetTime
// of those that have migrated by then. It advances no hash, and makes no pod
// unavailable, so it needs no budget. When it is cancelled it ends what it
// writes.
func (a *Activities) ResetBatch(ctx context.Context, input protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
	b := &resetBatch{Activities: a, set: input.SidecarSet, done: setOf(input.Refused)}
	writing, done := withoutCancelRequest(ctx)
	defer done()
	if err := b.reset(writing, input.Pods); err != nil {
		return b.outcome.resets(b.tried), err
	}
	end := a.Clock.Now().Add(resetTime)
	busy := a.Clock.Now()
	err := a.poll(ctx, input.SidecarSet.Name, func() (time.Duration, error) {
		found, err := a.migrating(ctx, input.SidecarSet, b.done)
		now := a.Clock.Now()
		if found.others > 0 {
			busy = now
		}
		left := end.Sub(now)
		if err != nil || left <= 0 || found.others == 0 && (!input.Upgrading || now.Sub(busy) >= lull) {
			return 0, err
		}
		return min(left, beat), b.reset(writing, found.migrated)
	})
	if endedEarly(ctx, err) {
		err = nil
	}
	return b.outcome.resets(b.tried), err
}

// resetBatch is one ResetBatch in progress.
type resetBatch struct {
	*Activities
	set     protocol.SetReference
	outcome outcome
	tried   []protocol.PodReference
	// done pods are not looked at again: the cache may not show it yet.
	done map[protocol.PodReference]bool
}

func (b *resetBatch) reset(ctx context.Context, pods []protocol.PodReference) error {
	for _, pod := range pods {
		b.done[pod] = true
	}
	b.tried = append(b.tried, pods...)
	return each(ctx, b.Activities, pods, func(ctx context.Context, reference protocol.PodReference) error {
		return b.change(ctx, reference, &b.outcome, change{
			decide: func(ctx context.Context, pod *corev1.Pod) (decision, error) { return b.decideReset(ctx, b.set, pod) },
			write:  b.resetPod,
		})
	})
}

func (a *Activities) decideReset(ctx context.Context, reference protocol.SetReference, pod *corev1.Pod) (decision, error) {
	set, err := a.set(ctx, reference)
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
