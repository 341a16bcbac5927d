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
	// lostBatchPause is the delay before the next attempt of a lost batch. During the delay, requests of the
	// lost process that are in flight should arrive, so that the next attempt finds the writes.
	lostBatchPause = 100 * time.Millisecond
)

// LostBatch is a batch that an earlier process of this pod claimed before the process ended.
type LostBatch struct {
	// Lease is the name of the rollout's Lease.
	Lease string
	task  []byte
}

// LostBatches lists the batches that an earlier process of this pod claimed. The kubelet restarts a container
// only after the process of the container has ended, so the earlier process sends no further writes. The caller
// must call LostBatches before this process claims a task, because LostBatches cannot distinguish the batches of
// this process from lost batches.
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
		if task := claimedTask(&leases.Items[i], a.PodUID); len(task) > 0 {
			lost = append(lost, LostBatch{leases.Items[i].Name, task})
		}
	}
	return lost, nil
}

// claimedTask returns the task that a pod recorded in a Lease with a holder, or nil. claimedTask ignores a
// record that cannot be decoded.
func claimedTask(lease *coordinationv1.Lease, podUID string) []byte {
	if holder(lease) == "" || lease.Annotations[v1alpha1.PodUIDAnnotation] != podUID {
		return nil
	}
	task, err := base64.StdEncoding.DecodeString(lease.Annotations[v1alpha1.TaskTokenAnnotation])
	if err != nil {
		return nil
	}
	return task
}

// Release calls end to report the failure of the batch to Temporal. Temporal then retries the batch after
// lostBatchPause, without waiting for the heartbeat timeout. released reports whether the batch was still
// claimed. Temporal ignores a report about an earlier attempt.
func (b LostBatch) Release(ctx context.Context, end func(ctx context.Context, task []byte, cause error) error) (released bool, err error) {
	err = end(ctx, b.task, temporal.NewApplicationErrorWithOptions("the worker was lost in the middle of the batch", lostBatchType,
		temporal.ApplicationErrorOptions{NextRetryDelay: lostBatchPause}))
	var over *serviceerror.NotFound
	switch {
	case errors.As(err, &over):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("release the batch of Lease %s: %w", b.Lease, err)
	}
	return true, nil
}
