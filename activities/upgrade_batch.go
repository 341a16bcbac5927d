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

// refillTime is how long a batch goes on with its reserve: long enough to be
// worth its events, short enough that the history tells how far a run is.
const refillTime = 30 * time.Second

// UpgradeBatch upgrades the chosen pods, each with one guarded write, and then,
// for refillTime, those of the reserve, as slots become free; it stops filling
// them when the server does not hear it any more. Pods that are gone, changed,
// or upgraded already are no errors; a pod whose write the API server refuses is
// reported and stops nothing. It fails only when the API server cannot be
// reached, and may then be called again. When it is cancelled it ends what it
// writes and says what it wrote.
func (a *Activities) UpgradeBatch(ctx context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	b := &batch{
		Activities: a, input: input, end: a.Clock.Now().Add(refillTime), lease: newLease(a.Clock),
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
	lease   *lease
	outcome outcome
	// left pods are still to be upgraded, in order; tried ones are not.
	left, tried []protocol.SelectedPod
	writers     *writers
	// unseen writes are not in the cache yet; shown tells that others are.
	unseen []protocol.WrittenPod
	shown  bool
}

func (b *batch) run(ctx context.Context) error {
	defer b.lease.keep(ctx, signOfLife(ctx, &b.outcome))()
	// A write that was begun must end, or nobody would know what it did.
	writing, done := withoutCancelRequest(ctx)
	defer done()
	b.writers, writing = b.newWriters(writing)
	if activity.GetInfo(ctx).Attempt > 1 {
		if err := b.catchUp(writing); err != nil {
			return err
		}
	}
	if len(b.tried) == 0 {
		b.left = b.input.Reserve
		b.upgrade(writing, b.input.Pods)
	}
	err := b.poll(ctx, b.input.SidecarSet.Name, func() (time.Duration, error) { return b.refill(writing) })
	if failed := b.writers.wait(); failed != nil {
		return failed
	}
	if endedEarly(ctx, err) {
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
	return err
}

// timeLeft is how long slots may still be filled.
func (b *batch) timeLeft() time.Duration {
	return min(b.end.Sub(b.Clock.Now()), b.lease.left())
}

// refill upgrades as many pods of the reserve as the cluster has room for.
func (b *batch) refill(ctx context.Context) (again time.Duration, err error) {
	left := b.timeLeft()
	if left <= 0 || len(b.left) == 0 || ctx.Err() != nil {
		return 0, nil
	}
	set, stopped, err := b.fence(ctx, b.input.SidecarSet, b.input.Generation)
	if err != nil || stopped != "" {
		return 0, err
	}
	unseen, err := b.notInCache(ctx)
	if err != nil {
		return 0, err
	}
	// Caches see writes in their order: one that shows a write of this batch
	// shows all batches before it.
	if !b.shown {
		return min(left, beat), nil
	}
	population, err := b.population(ctx, set)
	if err != nil {
		return 0, err
	}
	plan, err := rollout.Next(set, population, setOf(b.input.Refused))
	if err != nil {
		return 0, err
	}
	b.upgrade(ctx, b.fitting(&plan, unseen))
	return min(left, beat), nil
}

// notInCache counts the pods that were written, or are being written, and that
// the cache does not show so.
func (b *batch) notInCache(ctx context.Context) (int, error) {
	// In this order, one that ends meanwhile counts twice rather than never.
	pending := int(b.writers.pending.Load())
	written := append(b.unseen, b.outcome.newWrites()...)
	left, err := b.notShown(ctx, written)
	if err != nil {
		return 0, err
	}
	b.shown = b.shown || len(left) < len(written)
	b.unseen = left
	return pending + len(left), nil
}

// fitting takes from what is left the pods that a plan made now has room for,
// and would name too: their labels may have changed. Those that were chosen
// because they are not ready cost nothing (SPEC §7.5).
func (b *batch) fitting(plan *rollout.Plan, unseen int) []protocol.SelectedPod {
	room, named := plan.Room(unseen), setOf(references(slices.Concat(plan.Pods, plan.Reserve)))
	var fitting, left []protocol.SelectedPod
	for _, chosen := range b.left {
		switch {
		case !named[chosen.PodReference] || room == 0 && !chosen.Unready:
			left = append(left, chosen)
			continue
		case !chosen.Unready:
			room--
		}
		fitting = append(fitting, chosen)
	}
	b.left = left
	return fitting
}

// upgrade has pods taken through their upgrade, those of the reserve only while
// there is time.
func (b *batch) upgrade(ctx context.Context, chosen []protocol.SelectedPod) {
	timed := len(b.tried) > 0
	b.tried = append(b.tried, chosen...)
	for _, one := range chosen {
		b.writers.begin(ctx, one.PodReference, &b.outcome, change{
			decide: func(ctx context.Context, pod *corev1.Pod) (decision, error) {
				if timed && b.timeLeft() <= 0 {
					return decision{}, nil
				}
				return b.decideUpgrade(ctx, b.input, one, pod, &b.outcome)
			},
			write: b.patchPod,
		})
	}
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

// endedEarly tells whether a poll ended because the workflow asked for it, or
// because the worker stops; what was done until then stands.
func endedEarly(ctx context.Context, err error) bool {
	return requested(ctx) || errors.Is(err, errStopping)
}

// requested tells whether the workflow asked for the end of ctx.
func requested(ctx context.Context) bool {
	var canceled *temporal.CanceledError
	return ctx.Err() != nil && errors.As(context.Cause(ctx), &canceled)
}
