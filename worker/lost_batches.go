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

// lostBatches releases the batches of an earlier process of this pod.
type lostBatches struct {
	read func(context.Context) ([]activities.LostBatch, error)
	end  func(ctx context.Context, task []byte, cause error) error
	log  logr.Logger
	// known is closed once release has read the batches, or has given up.
	known chan struct{}
}

// release reads and releases the lost batches, with retries until the heartbeat timeout. After this timeout,
// Temporal retries lost batches without a release.
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

// before calls run once the lost batches are known. Otherwise, release could release a batch that run has
// just claimed.
func (l *lostBatches) before(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-l.known:
		return run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// retry calls try until try succeeds or the context ends. retry also stops if try is forbidden, because the Role
// of an earlier release of Outrigger lacks the permission.
func (l *lostBatches) retry(ctx context.Context, try func() error) {
	_ = wait.PollUntilContextCancel(ctx, lostBatchInterval, true, func(context.Context) (bool, error) {
		err := try()
		if err != nil {
			l.log.Info("cannot release batches that may be lost", "cause", err.Error())
		}
		return err == nil || apierrors.IsForbidden(err), nil
	})
}
