package activities

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"
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
	// writers are at work on pending pods, as many at a time as turns holds.
	writers *errgroup.Group
	turns   chan struct{}
	pending atomic.Int64
	// unseen writes are not in the cache yet; shown tells that others are.
	unseen []protocol.WrittenPod
	shown  bool
}

func (b *batch) run(ctx context.Context) error {
	defer b.keepBeating(ctx)()
	// A write that was begun must end, or nobody would know what it did.
	writing, done := withoutCancelRequest(ctx)
	defer done()
	b.writers, writing = errgroup.WithContext(writing)
	b.turns = make(chan struct{}, b.Writers)
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
	if failed := b.writers.Wait(); failed != nil {
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

// refill upgrades as many pods of the reserve as the cluster has room for.
func (b *batch) refill(ctx context.Context) (again time.Duration, err error) {
	left := b.end.Sub(b.Clock.Now())
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
	pending := int(b.pending.Load())
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
	stopping := activity.GetWorkerStopChannel(ctx)
	for _, one := range chosen {
		b.pending.Add(1)
		b.writers.Go(func() error {
			defer b.pending.Add(-1)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-stopping:
				return nil
			case b.turns <- struct{}{}:
			}
			defer func() { <-b.turns }()
			return b.change(ctx, one.PodReference, &b.outcome, change{
				decide: func(ctx context.Context, pod *corev1.Pod) (decision, error) {
					if timed && !b.Clock.Now().Before(b.end) {
						return decision{}, nil
					}
					return b.decideUpgrade(ctx, b.input, one, pod, &b.outcome)
				},
				write: b.patchPod,
			})
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
