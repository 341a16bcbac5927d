package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/upgrade"
)

// refillTime is how long a batch goes on with its reserve: long enough to be
// worth its events, short enough that the history tells how far a run is.
const refillTime = 30 * time.Second

// UpgradeBatch upgrades the chosen pods, each with one guarded write: those of
// both lists, in order, for refillTime and as long as the cluster has room for
// them by a plan made now, from the set as the API server has it. It ends early
// when nothing moves, or when only pods that it does not hold could, and stops
// filling slots when the server does not hear it any more. Pods that are gone,
// changed, or upgraded already are no errors; a pod whose write the API server
// refuses is reported and stops nothing. It fails only when the API server
// cannot be reached, and may then be called again. When it is cancelled it ends
// what it writes and says what it wrote.
func (a *Activities) UpgradeBatch(ctx context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	b := &batch{
		Activities: a, input: input, end: a.Clock.Now().Add(refillTime), lease: newLease(a.Clock),
		fence: a.newFence(input.SidecarSet, input.Generation, runOf(ctx, input.Run)),
		left:  slices.Concat(input.Pods, input.Reserve), taken: map[protocol.PodReference]bool{},
		before: a.newWrites(input.Written), own: a.newWrites(nil), idle: a.newIdle(),
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
	fence   *fence
	outcome outcome
	// left pods are still to be upgraded, in order; tried ones are not, and
	// taken holds the same.
	left, tried []protocol.SelectedPod
	taken       map[protocol.PodReference]bool
	writers     *writers
	// Writes before the batch, and its own, that the cache does not show yet.
	before, own *writes
	idle        idle
}

func (b *batch) run(ctx context.Context) error {
	defer b.lease.keep(ctx, heartbeatAnswered(ctx, &b.outcome))()
	if err := b.takeOver(ctx); err != nil {
		if endedEarly(ctx, err) {
			return nil
		}
		return err
	}
	// A write that was begun must end, or nobody would know what it did.
	writing, done := withoutCancelRequest(ctx)
	defer done()
	b.writers, writing = b.newWriters(writing)
	if activity.GetInfo(ctx).Attempt > 1 {
		if err := b.catchUp(writing); err != nil {
			return err
		}
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

// takeOver makes the run the one that upgrades pods. In the place of another, it
// first has the cache show whatever that one may have written.
func (b *batch) takeOver(ctx context.Context) error {
	takenOver, err := b.fence.claim.take(ctx)
	if err != nil || !takenOver {
		return err
	}
	set, err := b.readSet(ctx, b.input.SidecarSet)
	if err != nil || set == nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return fmt.Errorf("SidecarSet %s: spec.selector: %w", set.Name, err)
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := b.Live.List(ctx, pods, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("list pods that SidecarSet %s selects: %w", set.Name, err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; record.Injected(pod.Annotations, set.Name) {
			reference := protocol.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
			b.before.add([]protocol.WrittenPod{{PodReference: reference, ResourceVersion: pod.ResourceVersion}})
		}
	}
	return nil
}

// catchUp finds out what an attempt before this one has done, from the API
// server: the cache may not know yet. What that one may still have on the wire
// comes first in what is left. Pods of a generation that was left are all taken
// for written.
func (b *batch) catchUp(ctx context.Context) error {
	err := each(ctx, b.Activities, b.left, func(ctx context.Context, chosen protocol.SelectedPod) error {
		set, stopped, err := b.fence.check(ctx)
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
			b.try(chosen)
		}
	}
	b.left = slices.DeleteFunc(b.left, done)
	return err
}

// timeLeft is how long slots may still be filled.
func (b *batch) timeLeft() time.Duration {
	return min(b.end.Sub(b.Clock.Now()), b.lease.left())
}

// refill upgrades as many pods as the cluster has room for.
func (b *batch) refill(ctx context.Context) (again time.Duration, err error) {
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
	if err != nil || others {
		return 0, err
	}
	return min(left, b.idle.left(counts)), nil
}

// fill plans anew and has pods upgraded. others says that only pods which the
// batch does not hold may move.
func (b *batch) fill(ctx context.Context, set *v1alpha1.SidecarSet) (counts protocol.Counts, others bool, err error) {
	unseen, err := b.notInCache(ctx)
	if err != nil {
		return counts, false, err
	}
	population, err := b.population(ctx, set)
	if err != nil {
		return counts, false, err
	}
	plan, err := rollout.Next(set, population, setOf(b.input.Refused))
	if err != nil {
		return counts, false, err
	}
	refill := plan.Refill(b.left, b.taken, unseen)
	b.left = refill.Left
	b.upgrade(ctx, refill.Now)
	if unseen > 0 || len(refill.Now) > 0 {
		b.idle.moved()
	}
	return plan.Counts, refill.Others, nil
}

// notInCache counts the pods that were written, or are being written, and that
// the cache does not show so.
func (b *batch) notInCache(ctx context.Context) (int, error) {
	// In this order, one that ends meanwhile counts twice rather than never.
	pending := int(b.writers.pending.Load())
	b.own.add(b.outcome.newWrites())
	unseen, err := b.own.count(ctx)
	return pending + unseen, err
}

// upgrade has pods taken through their upgrade while there is time.
func (b *batch) upgrade(ctx context.Context, chosen []protocol.SelectedPod) {
	for _, one := range chosen {
		b.try(one)
		b.writers.begin(ctx, one.PodReference, &b.outcome, change{
			decide: func(ctx context.Context, pod *corev1.Pod) (decision, error) {
				if b.timeLeft() <= 0 {
					return decision{}, nil
				}
				return b.decideUpgrade(ctx, b.fence, one, pod, &b.outcome)
			},
			write: b.patchPod,
		})
	}
}

func (b *batch) try(chosen protocol.SelectedPod) {
	b.tried = append(b.tried, chosen)
	b.taken[chosen.PodReference] = true
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

// endedEarly reports whether a poll ended because the workflow asked for it, or
// because the worker stops; what was done until then stands.
func endedEarly(ctx context.Context, err error) bool {
	return requested(ctx) || errors.Is(err, errStopping)
}

// requested reports whether the workflow asked for the end of ctx.
func requested(ctx context.Context) bool {
	var canceled *temporal.CanceledError
	return ctx.Err() != nil && errors.As(context.Cause(ctx), &canceled)
}


// decideUpgrade looks at a chosen pod as it is now.
func (a *Activities) decideUpgrade(
	ctx context.Context, fence *fence, chosen protocol.SelectedPod, pod *corev1.Pod, outcome *outcome,
) (decision, error) {
	set, stopped, err := fence.check(ctx)
	if err != nil {
		return decision{}, err
	}
	if stopped != "" {
		outcome.stop(stopped)
		return decision{}, nil
	}
	state, matched, err := a.stateOf(ctx, set, pod)
	switch {
	case err != nil || !matched:
		return decision{}, err
	case state.Updated:
		return decision{done: true}, nil
	case !state.Upgradable || state.Waits() || chosen.Unready && state.Ready:
		return decision{}, nil
	}
	patch, err := a.upgradePatch(set, pod)
	return decision{patch: patch, refusal: err}, nil
}

func (a *Activities) upgradePatch(set *v1alpha1.SidecarSet, pod *corev1.Pod) ([]byte, error) {
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	name, err := revision.Current(set)
	if err != nil {
		return nil, err
	}
	target := upgrade.Target{Version: version, Revision: name, SetVersion: set.ResourceVersion, Metadata: set.Spec.PatchPodMetadata}
	return upgrade.Patch(pod, target, metav1.NewTime(a.Clock.Now()))
}
