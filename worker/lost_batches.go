package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/outrigger/outrigger/activities"
	"github.com/outrigger/outrigger/api/protocol"
)

// lostBatchInterval is the time between two attempts to release lost batches.
const lostBatchInterval = 500 * time.Millisecond

// lostBatches are the batches of the process that ran in this pod before.
type lostBatches struct {
	read func(context.Context) ([]activities.LostBatch, error)
	end  func(ctx context.Context, task []byte, cause error) error
	log  logr.Logger
	// known is closed once the batches are read, or cannot be read.
	known chan struct{}
}

// release tries until the heartbeat timeout, after which the server retries the batches by itself.
func (l *lostBatches) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, protocol.HeartbeatTimeout)
	defer cancel()
	var lost []activities.LostBatch
	l.retry(ctx, func() (err error) {
		lost, err = l.read(ctx)
		return err
	})
	close(l.known)
	l.retry(ctx, func() error {
		var failed []error
		lost = slices.DeleteFunc(lost, func(batch activities.LostBatch) bool {
			released, err := batch.Release(ctx, l.end)
			if released {
				l.log.Info("released a batch that the previous process of this pod had claimed", "lease", batch.Lease)
			}
			failed = append(failed, err)
			return err == nil
		})
		return errors.Join(failed...)
	})
}

// before calls run, which claims tasks, once the lost batches are known: batches that this process
// claims look the same, and must not be released.
func (l *lostBatches) before(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-l.known:
		return run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// retry ends with the context, or if an earlier Role lacks the permission. The heartbeat timeout
// then releases the batches.
func (l *lostBatches) retry(ctx context.Context, try func() error) {
	_ = wait.PollUntilContextCancel(ctx, lostBatchInterval, true, func(context.Context) (bool, error) {
		err := try()
		if err != nil {
			l.log.Info("cannot release batches that may be lost", "cause", err.Error())
		}
		return err == nil || apierrors.IsForbidden(err), nil
	})
}
