package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdk "go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/bench/testbed"
)

// pollEvery is how often caches and Temporal are asked whether what is awaited is there.
const pollEvery = 200 * time.Millisecond

// runs are those of all sets.
type runs struct {
	sets     client.Reader
	temporal sdk.Client
}

// watchRuns follows the sets in a cache of its own, until ctx ends.
func watchRuns(ctx context.Context, bed *testbed.Testbed) (*runs, error) {
	sets, err := cache.New(bed.Config, cache.Options{Scheme: bed.Kube.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	go func() { _ = sets.Start(ctx) }() // it ends with ctx, which whoever waits is told
	if _, err := sets.GetInformer(ctx, &v1alpha1.SidecarSet{}); err != nil {
		return nil, fmt.Errorf("watch SidecarSets: %w", err)
	}
	return &runs{sets: sets, temporal: bed.Temporal}, nil
}

// awaitSets waits until there are so many sets.
func (r *runs) awaitSets(ctx context.Context, n int) error {
	return r.await(ctx, fmt.Sprintf("%d SidecarSets", n), func(sets []v1alpha1.SidecarSet) bool { return len(sets) == n })
}

// awaitObserved waits until status belongs to the newest generation of each set, and its
// run was started.
func (r *runs) awaitObserved(ctx context.Context) error {
	return r.await(ctx, "the status of all SidecarSets", func(sets []v1alpha1.SidecarSet) bool {
		for i := range sets {
			set := &sets[i]
			rollout := set.Status.Rollout
			if set.Status.ObservedGeneration != set.Generation || rollout == nil || rollout.Generation != set.Generation {
				return false
			}
		}
		return true
	})
}

// awaitEnd waits until there are so many sets, and the run of each one's newest generation
// has ended.
func (r *runs) awaitEnd(ctx context.Context, sets int) error {
	if err := r.awaitSets(ctx, sets); err != nil {
		return err
	}
	if err := r.awaitObserved(ctx); err != nil {
		return err
	}
	var all, open int64
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (done bool, err error) {
		// A run that was just started is listed a moment later.
		if all, err = r.count(ctx, ""); err != nil || all < int64(sets) {
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

func (r *runs) await(ctx context.Context, what string, done func([]v1alpha1.SidecarSet) bool) error {
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		var sets v1alpha1.SidecarSetList
		if err := r.sets.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
			return false, err
		}
		return done(sets.Items), nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w (%w)", what, err, context.Cause(ctx))
	}
	return nil
}

// writer waits until a worker upgrades pods of a set, and names it as Temporal knows it.
func (r *runs) writer(ctx context.Context, set *v1alpha1.SidecarSet) (string, error) {
	var identity string
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		run, err := r.temporal.DescribeWorkflowExecution(ctx, protocol.WorkflowID(set.Name, set.UID), "")
		if err != nil {
			return false, err
		}
		for _, activity := range run.GetPendingActivities() {
			if activity.GetActivityType().GetName() == protocol.UpgradeBatchActivity && activity.GetState() == enums.PENDING_ACTIVITY_STATE_STARTED {
				identity = activity.GetLastWorkerIdentity()
			}
		}
		return identity != "", nil
	})
	if err != nil {
		return "", fmt.Errorf("wait for a worker that upgrades pods of SidecarSet %s: %w", set.Name, err)
	}
	return identity, nil
}
