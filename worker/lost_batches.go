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

// lostBatchInterval is the time between two attempts to give away lost batches.
const lostBatchInterval = 500 * time.Millisecond

// lostBatches are those of the process that ran in this pod before this one.
type lostBatches struct {
	read func(context.Context) ([]activities.LostBatch, error)
	end  func(ctx context.Context, task []byte, cause error) error
	log  logr.Logger
	// known is closed once they are read, or never will be.
	known chan struct{}
}

// giveAway tries until the server notices by itself that heartbeats are missing.
func (l *lostBatches) giveAway(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, protocol.HeartbeatTimeout)
	defer cancel()
	lost := l.find(ctx)
	l.retry(ctx, func() error {
		var failed []error
		lost = slices.DeleteFunc(lost, func(batch activities.LostBatch) bool {
			given, err := batch.End(ctx, l.end)
			if given {
				l.log.Info("gave away a batch that was lost with the process before this one", "lease", batch.Lease)
			}
			failed = append(failed, err)
			return err == nil
		})
		return errors.Join(failed...)
	})
}

func (l *lostBatches) find(ctx context.Context) (found []activities.LostBatch) {
	defer close(l.known)
	l.retry(ctx, func() (err error) {
		found, err = l.read(ctx)
		return err
	})
	return found
}

// before runs what takes tasks, once the lost batches are known: those that this process
// has in hand look the same, and must not be given away.
func (l *lostBatches) before(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-l.known:
		return run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// retry ends with the context, or if the rights are missing, which an earlier Role lacks:
// heartbeats decide then.
func (l *lostBatches) retry(ctx context.Context, try func() error) {
	_ = wait.PollUntilContextCancel(ctx, lostBatchInterval, true, func(context.Context) (bool, error) {
		err := try()
		if err != nil {
			l.log.Info("cannot give away batches that may be lost", "cause", err.Error())
		}
		return err == nil || apierrors.IsForbidden(err), nil
	})
}
