package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube"
)

const (
	// gather is how long freed slots are collected, so that a batch is worth
	// its events in the history.
	gather = 100 * time.Millisecond
	// replan bounds how often a moving population is planned anew.
	replan = 50 * time.Millisecond
	beat   = time.Second
)

// NextBatch waits until pods of the generation can be upgraded and returns
// them, or says why none will be. It changes nothing. While it has nothing to
// say it waits, NextBatchPoll long at most.
func (a *Activities) NextBatch(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
	changed, done := a.Changes.Wait(input.SidecarSet.Name)
	defer done()
	w := &wait{Activities: a, input: input, refused: make(map[protocol.PodReference]bool, len(input.Refused))}
	for _, pod := range input.Refused {
		w.refused[pod] = true
	}
	end := a.Clock.After(protocol.NextBatchPoll)
	beats := a.Clock.NewTicker(beat)
	defer beats.Stop()
	for {
		result, again, err := w.look(ctx)
		if err != nil || again == 0 {
			return result, err
		}
		if err := w.rest(ctx, replan); err != nil {
			return result, err
		}
		select {
		case <-changed:
		case <-a.Clock.After(again):
		case <-beats.C():
			activity.RecordHeartbeat(ctx)
		case <-end:
			return result, nil
		case <-ctx.Done():
			return result, ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return result, errStopping
		}
	}
}

// wait is one NextBatch in progress.
type wait struct {
	*Activities
	input   protocol.NextBatchInput
	refused map[protocol.PodReference]bool
	// first is when slots were first seen free.
	first time.Time
	seen  bool
}

// look makes one attempt. again says when to make another even if nothing
// changes; zero means that the result stands.
func (w *wait) look(ctx context.Context) (result protocol.NextBatchResult, again time.Duration, err error) {
	set, err := w.set(ctx, w.input.SidecarSet)
	if err != nil {
		return result, 0, err
	}
	switch {
	case set == nil:
		return protocol.NextBatchResult{Phase: protocol.PhaseDeleted, Message: "the SidecarSet is gone"}, 0, nil
	case set.Generation > w.input.Generation:
		return protocol.NextBatchResult{Phase: protocol.PhaseSuperseded, Generation: set.Generation}, 0, nil
	case set.Generation < w.input.Generation:
		return waitingFor("the worker's cache to show this generation"), beat, nil
	}
	if !w.seen {
		if w.seen, err = w.cacheShows(ctx, w.input.Written); err != nil {
			return result, 0, err
		}
		if !w.seen {
			return waitingFor("the worker's cache to show the batch written last"), beat, nil
		}
	}
	plan, err := w.plan(ctx, set)
	if err != nil {
		return result, 0, err
	}
	result = protocol.NextBatchResult{Phase: plan.Phase, Message: plan.Message, Pods: plan.Pods, Counts: plan.Counts}
	return result, w.patience(&plan), nil
}

func waitingFor(what string) protocol.NextBatchResult {
	return protocol.NextBatchResult{Phase: protocol.PhaseWaiting, Message: "waiting for " + what}
}

func (w *wait) plan(ctx context.Context, set *v1alpha1.SidecarSet) (rollout.Plan, error) {
	pods, err := kube.PodsOf(ctx, w.Cache, set.Name)
	if err != nil {
		return rollout.Plan{}, err
	}
	population, err := rollout.Population(set, pods, w.namespaceLabels(ctx))
	if err != nil {
		return rollout.Plan{}, err
	}
	return rollout.Next(set, population, w.refused)
}

// patience says how long to wait for a better plan. A batch of half the window
// is worth its events at once; fewer pods wait a moment for company.
func (w *wait) patience(plan *rollout.Plan) time.Duration {
	switch {
	case plan.Phase == protocol.PhaseWaiting:
		w.first = time.Time{}
		return beat
	case plan.Phase != protocol.PhaseProgressing:
		return 0
	case len(plan.Pods) == rollout.MaxBatch || 2*len(plan.Pods) >= min(plan.Slots, plan.Counts.Remaining):
		return 0
	}
	if w.first.IsZero() {
		w.first = w.Clock.Now()
	}
	return max(gather-w.Clock.Since(w.first), 0)
}

// rest keeps a storm of pod events from planning without pause.
func (w *wait) rest(ctx context.Context, d time.Duration) error {
	select {
	case <-w.Clock.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
