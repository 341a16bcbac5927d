package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// pollEvery is the time between two reads of the cache or of Temporal while the benchmark waits.
const pollEvery = 200 * time.Millisecond

// watchSets returns a reader of a new cache of SidecarSets, which is updated until ctx ends.
func (h *harness) watchSets(ctx context.Context) (client.Reader, error) {
	config, err := h.stack.RESTConfig()
	if err != nil {
		return nil, err
	}
	sets, err := cache.New(config, cache.Options{Scheme: h.stack.Kube.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	go func() { _ = sets.Start(ctx) }() // Start returns when ctx ends. Callers that wait for the cache report the error.
	if _, err := sets.GetInformer(ctx, &v1alpha1.SidecarSet{}); err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	return sets, nil
}

// awaitObserved waits until n SidecarSets exist, and the status of each SidecarSet shows that the newest
// generation is observed and that the run has started.
func (h *harness) awaitObserved(ctx context.Context, n int) error {
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		var sets v1alpha1.SidecarSetList
		if err := h.cached.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
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

// awaitEnd waits until all SidecarSets exist and the run of the newest generation of each SidecarSet has
// ended.
func (h *harness) awaitEnd(ctx context.Context) error {
	n := h.bench.sets + h.idle
	if err := h.awaitObserved(ctx, n); err != nil {
		return err
	}
	var all, open int64
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (done bool, err error) {
		// Temporal lists a new run with a short delay.
		if all, err = h.countRuns(ctx, ""); err != nil || all < int64(n) {
			return false, err
		}
		open, err = h.countRuns(ctx, " AND ExecutionStatus = 'Running'")
		return open == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for the end of the runs, %d of %d are open: %w (%w)", open, all, err, context.Cause(ctx))
	}
	return nil
}

func (h *harness) countRuns(ctx context.Context, condition string) (int64, error) {
	counted, err := h.stack.Temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s'", protocol.RolloutWorkflow) + condition,
	})
	return counted.GetCount(), err
}
