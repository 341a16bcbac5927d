package activities

import (
	"context"
	"sync/atomic"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"
)

// pool runs a limited number of tasks at a time. The first error, the end of the context and the
// worker's stop end the pool: tasks that have not begun then do nothing.
type pool struct {
	group *errgroup.Group
	slots chan struct{}
	// tasks is the context of the tasks; an error of a task ends it. whole is its parent, which
	// only end ends.
	whole, tasks context.Context
	end          context.CancelCauseFunc
	// stopping is closed when the worker stops.
	stopping <-chan struct{}
	// pending counts the submitted tasks that are not done.
	pending atomic.Int64
}

// newPool returns a pool and the context of its tasks.
func newPool(ctx context.Context, size int) (*pool, context.Context) {
	p := &pool{slots: make(chan struct{}, size)}
	p.whole, p.end = context.WithCancelCause(ctx)
	p.group, p.tasks = errgroup.WithContext(p.whole)
	p.stopping = activity.GetWorkerStopChannel(ctx)
	go func() {
		select {
		case <-p.stopping:
			p.end(errStopping)
		case <-p.tasks.Done():
		}
	}()
	return p, p.tasks
}

// submit queues a task and returns at once.
func (p *pool) submit(ctx context.Context, task func(context.Context) error) {
	p.pending.Add(1)
	p.group.Go(func() error {
		defer p.pending.Add(-1)
		select {
		case <-ctx.Done():
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		}
		select {
		case <-p.stopping:
			p.end(errStopping)
		default:
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return task(ctx)
	})
}

// finish waits for the tasks. With an error, tasks that have not begun do nothing. It returns the
// error that ended the pool.
func (p *pool) finish(err error) error {
	if p.tasks.Err() != nil {
		err = context.Cause(p.tasks)
	}
	if err != nil {
		p.end(err)
	}
	return p.wait()
}

// wait waits for all tasks and returns the error that ended the pool.
func (p *pool) wait() error {
	defer p.end(nil)
	err := p.group.Wait()
	if p.whole.Err() != nil {
		return context.Cause(p.whole)
	}
	return err
}
