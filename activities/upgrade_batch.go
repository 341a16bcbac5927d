package activities

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/rollout"
)

// refillTime is how long a batch goes on with its reserve. It ends well before
// the server could give the batch of a worker that is cut off to another one
// (HeartbeatTimeout), so that no two of them fill the same slots.
const refillTime = protocol.HeartbeatTimeout / 2

// UpgradeBatch upgrades the chosen pods, each with one guarded write, and then,
// for refillTime, those of the reserve, as slots become free. Pods that are
// gone, changed, or upgraded already are no errors; a pod whose write the API
// server refuses is reported and stops nothing. It fails only when the API
// server cannot be reached, and may then be called again. When it is cancelled
// it ends what it writes and says what it wrote.
func (a *Activities) UpgradeBatch(ctx context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	b := &batch{
		Activities: a, input: input, end: a.Clock.Now().Add(refillTime),
		left: slices.Concat(input.Pods, input.Reserve),
	}
	err := b.run(ctx)
	return b.outcome.upgrades(b.tried), err
}

// batch is one UpgradeBatch in progress.
type batch struct {
	*Activities
	input   protocol.UpgradeBatchInput
	end     time.Time
	outcome outcome
	// left pods are still to be upgraded, in order; tried ones are not.
	left, tried []protocol.SelectedPod
	// unseen writes are not in the cache yet.
	unseen []protocol.WrittenPod
}

func (b *batch) run(ctx context.Context) error {
	// A write that was begun must end, or nobody would know what it did.
	writing, done := withoutCancelRequest(ctx)
	defer done()
	if activity.GetInfo(ctx).Attempt > 1 {
		if err := b.catchUp(writing); err != nil {
			return err
		}
	}
	if len(b.tried) == 0 {
		if err := b.upgrade(writing, len(b.input.Pods)); err != nil {
			return err
		}
	}
	err := b.poll(ctx, b.input.SidecarSet.Name, func() (time.Duration, error) { return b.refill(writing) })
	if requested(ctx) || errors.Is(err, errStopping) {
		return nil
	}
	return err
}

// catchUp finds out what an attempt before this one has done, from the API
// server: the cache may not know yet. What that one may still have on the wire
// comes first in what is left. Pods of a generation that was left are all taken
// for written.
func (b *batch) catchUp(ctx context.Context) error {
	err := each(ctx, b.Activities, b.left, func(ctx context.Context, chosen protocol.SelectedPod) error {
		set, stopped, err := b.fence(ctx, b.input.SidecarSet, b.input.Generation)
		if err != nil {
			return err
		}
		pod, err := b.read(ctx, b.Live, chosen.PodReference)
		if err != nil || pod == nil {
			return err
		}
		if stopped == "" {
			state, _, err := b.stateOf(ctx, set, pod)
			if err != nil || !state.Updated {
				return err
			}
		}
		b.outcome.wrote(chosen.PodReference, pod.ResourceVersion)
		return nil
	})
	done := func(chosen protocol.SelectedPod) bool {
		_, done := b.outcome.written[chosen.PodReference]
		return done
	}
	for _, chosen := range b.left {
		if done(chosen) {
			b.tried = append(b.tried, chosen)
		}
	}
	b.left = slices.DeleteFunc(b.left, done)
	b.unseen = b.outcome.writes(references(b.tried))
	return err
}

// refill upgrades as many pods of the reserve as the cluster has room for.
func (b *batch) refill(ctx context.Context) (again time.Duration, err error) {
	left := b.end.Sub(b.Clock.Now())
	if left <= 0 || len(b.left) == 0 || b.outcome.stopped != "" {
		return 0, nil
	}
	set, stopped, err := b.fence(ctx, b.input.SidecarSet, b.input.Generation)
	if err != nil || stopped != "" {
		return 0, err
	}
	if b.unseen, err = b.notShown(ctx, b.unseen); err != nil {
		return 0, err
	}
	// Caches see writes in their order: one that shows a write of this batch
	// shows all batches before it.
	if len(b.unseen) == len(b.outcome.written) {
		return min(left, beat), nil
	}
	population, err := b.population(ctx, set)
	if err != nil {
		return 0, err
	}
	plan, err := rollout.Next(set, population, nil)
	if err != nil {
		return 0, err
	}
	if n := b.fits(plan.Room(len(b.unseen))); n > 0 {
		err = b.upgrade(ctx, n)
	}
	return min(left, beat), err
}

// fits counts the pods of the reserve that may be taken: those that were
// chosen because they are not ready cost nothing (SPEC §7.5).
func (b *batch) fits(room int) (n int) {
	for _, chosen := range b.left {
		if !chosen.Unready {
			if room == 0 {
				break
			}
			room--
		}
		n++
	}
	return n
}

// upgrade takes the next n pods through their upgrade, those of the reserve
// only while there is time.
func (b *batch) upgrade(ctx context.Context, n int) error {
	chosen := b.left[:n]
	b.left = b.left[n:]
	inTime := func() bool { return len(b.tried) == 0 || b.Clock.Now().Before(b.end) }
	err := each(ctx, b.Activities, chosen, func(ctx context.Context, chosen protocol.SelectedPod) error {
		return b.change(ctx, chosen.PodReference, &b.outcome, change{
			decide: func(ctx context.Context, pod *corev1.Pod) (decision, error) {
				if !inTime() {
					return decision{}, nil
				}
				return b.decideUpgrade(ctx, b.input, chosen, pod, &b.outcome)
			},
			write: b.patchPod,
		})
	})
	b.tried = append(b.tried, chosen...)
	b.unseen = append(b.unseen, b.outcome.writes(references(chosen))...)
	return err
}

func references(pods []protocol.SelectedPod) []protocol.PodReference {
	references := make([]protocol.PodReference, 0, len(pods))
	for _, pod := range pods {
		references = append(references, pod.PodReference)
	}
	return references
}

// withoutCancelRequest ends with ctx, but not because the workflow asks for it.
func withoutCancelRequest(ctx context.Context) (context.Context, func()) {
	going, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !requested(ctx) {
			cancel()
		}
	})
	return going, func() {
		stop()
		cancel()
	}
}

// requested tells whether the workflow asked for the end of ctx.
func requested(ctx context.Context) bool {
	var canceled *temporal.CanceledError
	return ctx.Err() != nil && errors.As(context.Cause(ctx), &canceled)
}
