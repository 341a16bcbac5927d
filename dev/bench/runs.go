package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	sdk "go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// pollEvery is how often the cache and Temporal are read while the bench waits.
const pollEvery = 200 * time.Millisecond

// runs are those of all SidecarSets.
type runs struct {
	sets     client.Reader
	temporal sdk.Client
}

// watchRuns follows the SidecarSets in a cache of its own, until ctx ends.
func watchRuns(ctx context.Context, h *harness) (*runs, error) {
	config, err := h.stack.RESTConfig()
	if err != nil {
		return nil, err
	}
	sets, err := cache.New(config, cache.Options{Scheme: h.stack.Kube.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	go func() { _ = sets.Start(ctx) }() // ends with ctx, whose cause every wait reports
	if _, err := sets.GetInformer(ctx, &v1alpha1.SidecarSet{}); err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	return &runs{sets: sets, temporal: h.stack.Temporal}, nil
}

// awaitObserved waits until there are n SidecarSets, whose status belongs to the newest
// generation and whose runs were started.
func (r *runs) awaitObserved(ctx context.Context, n int) error {
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		var sets v1alpha1.SidecarSetList
		if err := r.sets.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
			return false, err
		}
		for i := range sets.Items {
			set := &sets.Items[i]
			rollout := set.Status.Rollout
			if set.Status.ObservedGeneration != set.Generation || rollout == nil || rollout.Generation != set.Generation {
				return false, nil
			}
		}
		return len(sets.Items) == n, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the status of %d SidecarSets: %w (%w)", n, err, context.Cause(ctx))
	}
	return nil
}

// awaitEnd waits until there are n SidecarSets, and the run of the newest generation of each
// has ended.
func (r *runs) awaitEnd(ctx context.Context, n int) error {
	if err := r.awaitObserved(ctx, n); err != nil {
		return err
	}
	var all, open int64
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (done bool, err error) {
		// A run that was just started is listed a moment later.
		if all, err = r.count(ctx, ""); err != nil || all < int64(n) {
			return false, err
		}
		open, err = r.count(ctx, " AND ExecutionStatus = 'Running'")
		return open == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for the end of the runs, %d of %d are open: %w (%w)", open, all, err, context.Cause(ctx))
	}
	return nil
}

func (r *runs) count(ctx context.Context, condition string) (int64, error) {
	counted, err := r.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s'", protocol.RolloutWorkflow) + condition,
	})
	return counted.GetCount(), err
}
