package runs

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// collectInterval is the time between two comparisons of open runs with the SidecarSets.
	// collectRetry is the delay after a failed comparison.
	collectInterval = 5 * time.Minute
	collectRetry    = 15 * time.Second
	// The run of a deleted SidecarSet is signalled with this backoff until the run has ended. The
	// cache of the worker may still contain the SidecarSet at the first signal.
	minSignalBackoff = time.Second
	maxSignalBackoff = 5 * time.Minute
	// listPageSize is the number of runs in one page of a list.
	listPageSize = 500
)

// Orphans ends the runs of deleted SidecarSets, and requeues SidecarSets whose runs work on another
// generation. Orphans runs only in the leader.
type Orphans struct {
	client *Client
	cache  client.Reader
	// live reads from the API server, not from the cache.
	live client.Reader
	// Orphans sends a SidecarSet to Requeues if the run of the SidecarSet works on another generation than
	// metadata.generation. The controller then reconciles the SidecarSet.
	Requeues chan event.GenericEvent
	queue    workqueue.TypedRateLimitingInterface[orphan]

	mu         sync.Mutex
	mismatches map[string]bool
}

// orphan is the run of a deleted SidecarSet.
type orphan struct {
	set        protocol.SetReference
	generation int64
}

// NewOrphans returns an Orphans with an empty queue.
func NewOrphans(runs *Client, cache, live client.Reader) *Orphans {
	return &Orphans{
		client: runs, cache: cache, live: live,
		Requeues:   make(chan event.GenericEvent),
		queue:      workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[orphan](minSignalBackoff, maxSignalBackoff)),
		mismatches: map[string]bool{},
	}
}

// Add queues the run of a deleted SidecarSet.
func (o *Orphans) Add(set *v1alpha1.SidecarSet) {
	o.queue.Add(orphan{Reference(set), set.Generation})
}

// TakeMismatch reports whether Orphans has found, since the last call for set, that the run of the SidecarSet
// works on another generation.
func (o *Orphans) TakeMismatch(set string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := o.mismatches[set]
	delete(o.mismatches, set)
	return found
}

// Start implements manager.Runnable.
func (o *Orphans) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, o.queue.ShutDown)()
	var signals sync.WaitGroup
	signals.Go(func() { o.signalAll(ctx) })
	defer signals.Wait()
	timer := o.client.clock.NewTimer(collectInterval)
	defer timer.Stop()
	for ctx.Err() == nil {
		if _ = o.client.AwaitProbe(ctx); o.client.Unreachable() {
			timer.Reset(reconnectInterval)
		} else {
			timer.Reset(o.collect(ctx))
		}
		select {
		case <-o.client.reconnected:
		case <-timer.C():
		case <-ctx.Done():
		}
	}
	return nil
}

// signalAll signals each run of a deleted SidecarSet until the run has ended.
func (o *Orphans) signalAll(ctx context.Context) {
	for {
		run, shutdown := o.queue.Get()
		if shutdown {
			return
		}
		if _ = o.client.AwaitProbe(ctx); o.client.Unreachable() {
			o.queue.AddAfter(run, reconnectInterval)
		} else if open, err := o.client.Signal(ctx, run.set, protocol.GenerationSignal, protocol.GenerationInput{Generation: run.generation}); open || err != nil {
			if err != nil {
				o.client.log.Info("cannot signal the run of a deleted SidecarSet; trying again", "sidecarset", run.set.Name, "cause", err.Error())
			}
			o.queue.AddRateLimited(run)
		} else {
			o.queue.Forget(run)
		}
		o.queue.Done(run)
	}
}

// collect compares the open runs of this cluster with its SidecarSets, and returns the
// time until the next comparison.
func (o *Orphans) collect(ctx context.Context) time.Duration {
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: o.client.namespace, PageSize: listPageSize,
		Query: fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='Running' AND TaskQueue='%s'", protocol.RolloutWorkflow, o.client.taskQueue),
	}
	for {
		answer, err := call(ctx, o.client.connection, listCall, o.client.client.WorkflowService().ListWorkflowExecutions, request)
		if err != nil {
			o.client.log.Info("cannot list open runs; trying again", "cause", err.Error())
			return collectRetry
		}
		for _, info := range answer.GetExecutions() {
			if err := o.compare(ctx, info); err != nil {
				o.client.log.Info("cannot compare a run with its SidecarSet; trying again", "workflowID", info.GetExecution().GetWorkflowId(), "cause", err.Error())
				return collectRetry
			}
		}
		if request.NextPageToken = answer.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return collectInterval
		}
	}
}

// compare finds the SidecarSet of an open run, by name and UID. If there is no such SidecarSet, compare
// queues the run. If the run works on another generation, compare requeues the SidecarSet.
func (o *Orphans) compare(ctx context.Context, info *workflow.WorkflowExecutionInfo) error {
	reference, ok := ParseWorkflowID(info.GetExecution().GetWorkflowId())
	if !ok {
		return nil
	}
	found, err := Read(o.client.converter, info)
	if err != nil {
		return err
	}
	for _, reader := range []client.Reader{o.cache, o.live} {
		set := &v1alpha1.SidecarSet{}
		err := reader.Get(ctx, types.NamespacedName{Name: reference.Name}, set)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read SidecarSet %s: %w", reference.Name, err)
		}
		if err == nil && set.UID == reference.UID {
			if found.GenerationMismatch(set) {
				o.requeue(ctx, set)
			}
			return nil
		}
	}
	o.client.log.Info("a run's SidecarSet is gone", "workflowID", info.GetExecution().GetWorkflowId())
	o.queue.Add(orphan{reference, found.Generation})
	return nil
}

// requeue requeues a SidecarSet whose run works on another generation.
func (o *Orphans) requeue(ctx context.Context, set *v1alpha1.SidecarSet) {
	o.mu.Lock()
	o.mismatches[set.Name] = true
	o.mu.Unlock()
	select {
	case o.Requeues <- event.GenericEvent{Object: set}:
	case <-ctx.Done():
	}
}

// ParseWorkflowID returns the SidecarSet of the run with the workflow ID id, or false if id is not the
// workflow ID of a rollout.
func ParseWorkflowID(id string) (protocol.SetReference, bool) {
	parts := strings.Split(id, "/")
	if len(parts) != 3 {
		return protocol.SetReference{}, false
	}
	set := protocol.SetReference{Name: parts[1], UID: types.UID(parts[2])}
	return set, protocol.WorkflowID(set.Name, set.UID) == id
}
