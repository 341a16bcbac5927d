package activities

import (
	"context"
	"sync"
	"sync/atomic"

	"go.temporal.io/sdk/activity"
)

// pool runs a limited number of tasks at a time. The pool ends at the first error, when the context ends, or when
// the worker stops. After the end, the pool skips the tasks that have not begun.
type pool struct {
	group sync.WaitGroup
	slots chan struct{}
	// ctx is the context of the tasks. The cause of ctx is the error that ended the pool.
	ctx context.Context //nolint:containedctx // tasks are submitted while other tasks run
	end context.CancelCauseFunc
	// stopping is closed when the worker stops.
	stopping <-chan struct{}
	// pending counts the submitted tasks that are not done.
	pending atomic.Int64
}

// newPool returns a pool that runs at most size tasks at a time, and the context of the tasks.
func newPool(ctx context.Context, size int) (*pool, context.Context) {
	p := &pool{slots: make(chan struct{}, size), stopping: activity.GetWorkerStopChannel(ctx)}
	p.ctx, p.end = context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.stopping:
			p.end(errStopping)
		case <-p.ctx.Done():
		}
	}()
	return p, p.ctx
}

// submit queues a task and returns immediately.
func (p *pool) submit(task func(context.Context) error) {
	p.pending.Add(1)
	p.group.Go(func() {
		defer p.pending.Add(-1)
		select {
		case <-p.ctx.Done():
			return
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		}
		select {
		case <-p.stopping:
			p.end(errStopping)
		default:
		}
		if p.ctx.Err() != nil {
			return
		}
		if err := task(p.ctx); err != nil {
			p.end(err)
		}
	})
}

// finish waits for the tasks. If err is not nil, the pool skips the tasks that have not begun. finish returns the
// error that ended the pool.
func (p *pool) finish(err error) error {
	if err != nil {
		p.end(err)
	}
	return p.wait()
}

// wait waits for all tasks and returns the error that ended the pool.
func (p *pool) wait() error {
	defer p.end(nil)
	p.group.Wait()
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return nil
}
