package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/outrigger/outrigger/activities"
)

// A worker lists lost batches before it polls for tasks. In the reverse order, the worker could release a
// batch that the worker has just started. Another worker could then claim the batch, and two workers would
// write the same pods.
func TestNoTaskIsPolledBeforeLostBatchesAreListed(t *testing.T) {
	answers := make(chan error)
	lost := lostBatches{log: logr.Discard(), known: make(chan struct{}), read: func(context.Context) ([]activities.LostBatch, error) {
		return nil, <-answers
	}}
	hosting := make(chan struct{})
	go lost.release(t.Context())
	go func() {
		_ = lost.before(t.Context(), func(context.Context) error {
			close(hosting)
			return nil
		})
	}()
	answers <- errors.New("connection refused")
	// The worker retries the list, and does not poll yet.
	select {
	case <-hosting:
		require.Fail(t, "tasks are taken")
	case answers <- nil:
	}
	<-hosting
}

// A Lease may contain a task token that Temporal rejects.
func TestALostBatchThatCannotBeReleasedDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		lost := lostBatches{log: logr.Discard(), known: make(chan struct{})}
		lost.read = func(context.Context) ([]activities.LostBatch, error) {
			return []activities.LostBatch{{Lease: "edited"}, {Lease: "lost"}}, nil
		}
		lost.end = func(context.Context, []byte, error) error {
			if asked = append(asked, time.Now()); len(asked) == 1 {
				return errors.New("no task")
			}
			return nil
		}
		lost.release(t.Context())
		require.Len(t, asked, 3)
		assert.Equal(t, asked[0], asked[1], "the other one waits")
		assert.Equal(t, asked[0].Add(lostBatchInterval), asked[2], "it is tried again")
	})
}

func TestAWorkerThatMayNotListLeasesDoesNotWait(t *testing.T) {
	asked := 0
	lost := lostBatches{log: logr.Discard(), known: make(chan struct{}), read: func(context.Context) ([]activities.LostBatch, error) {
		asked++
		return nil, apierrors.NewForbidden(schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}, "", nil)
	}}
	lost.release(t.Context())
	require.NoError(t, lost.before(t.Context(), func(context.Context) error { return nil }))
	assert.Equal(t, 1, asked)
}

func TestAWorkerThatEndsWaitsForNoLostBatches(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	lost := lostBatches{known: make(chan struct{})}
	require.NoError(t, lost.before(ctx, func(context.Context) error { return errors.New("it began") }))
}
