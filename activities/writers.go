package activities

import (
	"context"
	"sync/atomic"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"

	"github.com/outrigger/outrigger/api/protocol"
)

// writers change pods while the next ones are looked for.
type writers struct {
	*Activities
	group *errgroup.Group
	// turns bounds how many pods are written at a time.
	turns chan struct{}
	// pending pods were begun, and are not done.
	pending atomic.Int64
}

// newWriters also returns the context to begin with: it ends at the first error.
func (a *Activities) newWriters(ctx context.Context) (*writers, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	return &writers{Activities: a, group: group, turns: make(chan struct{}, a.Writers)}, ctx
}

// begin takes one pod through a change when its turn comes. Once the worker
// stops, or an error was met, it does nothing.
func (w *writers) begin(ctx context.Context, reference protocol.PodReference, outcome *outcome, c change) {
	stopping := activity.GetWorkerStopChannel(ctx)
	w.pending.Add(1)
	w.group.Go(func() error {
		defer w.pending.Add(-1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stopping:
			return nil
		case w.turns <- struct{}{}:
		}
		defer func() { <-w.turns }()
		return w.change(ctx, reference, outcome, c)
	})
}

// wait ends when all that were begun are done, with the first error.
func (w *writers) wait() error { return w.group.Wait() }
