package activities

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	lostBatchType = "WorkerLost"
	// lostBatchPause is before the next attempt. That reads each pod from the API server,
	// so what the lost process had on its way to it should have arrived.
	lostBatchPause = 100 * time.Millisecond
)

// LostBatch is one that a process had in hand which is gone.
type LostBatch struct {
	// Lease is the name of that of its rollout.
	Lease string
	task  []byte
}

// LostBatches are those that were in the hand of the process which ran in this pod before
// this one: the kubelet starts a container again only once the one before has ended, so
// nobody writes for them any more. To be read before this process takes any task: batches
// of its own look the same.
func (a *Activities) LostBatches(ctx context.Context) ([]LostBatch, error) {
	if a.PodUID == "" {
		return nil, nil
	}
	leases := &coordinationv1.LeaseList{}
	if err := a.Live.List(ctx, leases, client.InNamespace(a.SystemNamespace)); err != nil {
		return nil, fmt.Errorf("list Leases in %s: %w", a.SystemNamespace, err)
	}
	var lost []LostBatch
	for i := range leases.Items {
		if task := taskInHand(&leases.Items[i], a.PodUID); len(task) > 0 {
			lost = append(lost, LostBatch{leases.Items[i].Name, task})
		}
	}
	return lost, nil
}

// taskInHand is the task that a pod noted in a Lease which is held. What others have
// written there is none.
func taskInHand(lease *coordinationv1.Lease, podUID string) []byte {
	if holder(lease) == "" || lease.Annotations[v1alpha1.PodUIDAnnotation] != podUID {
		return nil
	}
	task, err := base64.StdEncoding.DecodeString(lease.Annotations[v1alpha1.TaskTokenAnnotation])
	if err != nil {
		return nil
	}
	return task
}

// End has Temporal give the batch to somebody else, and reports whether it was still to be
// given away. Without it the batch waits until heartbeats have been missed. end answers for
// a task; the server ignores the answer unless it is about the newest attempt.
func (b LostBatch) End(ctx context.Context, end func(ctx context.Context, task []byte, cause error) error) (given bool, err error) {
	err = end(ctx, b.task, temporal.NewApplicationErrorWithOptions("the worker was lost in the middle of the batch", lostBatchType,
		temporal.ApplicationErrorOptions{NextRetryDelay: lostBatchPause}))
	var over *serviceerror.NotFound
	switch {
	case errors.As(err, &over):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("end the batch of Lease %s: %w", b.Lease, err)
	}
	return true, nil
}
