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

// EndLostBatches has Temporal give the batches to somebody else that were in the hand of
// the process which ran in this pod before this one, and returns how many. Without it they
// wait until heartbeats have been missed. The kubelet starts a container again only once
// the one before has ended, so nobody writes for these batches any more. end answers for a
// task; the server ignores the answer unless it is about the newest attempt.
func (a *Activities) EndLostBatches(ctx context.Context, end func(ctx context.Context, token []byte, cause error) error) (ended int, err error) {
	if a.PodUID == "" {
		return 0, nil
	}
	leases := &coordinationv1.LeaseList{}
	if err := a.Live.List(ctx, leases, client.InNamespace(a.SystemNamespace)); err != nil {
		return 0, fmt.Errorf("list Leases in %s: %w", a.SystemNamespace, err)
	}
	var failed []error
	for i := range leases.Items {
		switch lost, err := a.endLostBatch(ctx, &leases.Items[i], end); {
		case err != nil:
			failed = append(failed, fmt.Errorf("end the batch of Lease %s/%s: %w", a.SystemNamespace, leases.Items[i].Name, err))
		case lost:
			ended++
		}
	}
	return ended, errors.Join(failed...)
}

func (a *Activities) endLostBatch(ctx context.Context, lease *coordinationv1.Lease, end func(context.Context, []byte, error) error) (lost bool, err error) {
	task := lease.Annotations[v1alpha1.TaskTokenAnnotation]
	if lease.Annotations[v1alpha1.PodUIDAnnotation] != a.PodUID || task == "" {
		return false, nil
	}
	token, err := base64.StdEncoding.DecodeString(task)
	if err != nil {
		return false, err
	}
	err = end(ctx, token, temporal.NewApplicationErrorWithOptions("the worker was lost in the middle of the batch", lostBatchType,
		temporal.ApplicationErrorOptions{NextRetryDelay: lostBatchPause}))
	var over *serviceerror.NotFound
	if errors.As(err, &over) {
		return false, nil
	}
	return err == nil, err
}
