package operator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// collectInterval is how often open runs are compared with the sets.
	collectInterval = 5 * time.Minute
	// The run of a deleted set is signalled until it has ended, with this backoff:
	// the cache of its worker may still hold the set.
	minSignalBackoff = time.Second
	maxSignalBackoff = 5 * time.Minute
	// listPageSize is how many runs are listed at once.
	listPageSize = 500
)

// orphanCollector ends the runs of deleted sets, and requeues sets whose runs work on
// another generation. It runs on the leader alone.
type orphanCollector struct {
	rollouts *rolloutClient
	cache    client.Reader
	// live reads past the cache.
	live       client.Reader
	mismatches *nameSet
	// requeues gets the sets whose runs do not match them.
	requeues chan event.GenericEvent
	log      logr.Logger

	added chan struct{}
	mu    sync.Mutex
	// orphans are the runs that are yet to end, by their deleted sets.
	orphans map[protocol.SetReference]*orphan
}

// orphan is the run of a deleted set.
type orphan struct {
	generation int64
	// signalAt is the time of the next signal, and backoff the time after that.
	signalAt time.Time
	backoff  time.Duration
}

func newOrphanCollector(rollouts *rolloutClient, cache, live client.Reader, mismatches *nameSet) *orphanCollector {
	return &orphanCollector{
		rollouts: rollouts, cache: cache, live: live, mismatches: mismatches, log: rollouts.log.WithName("orphans"),
		requeues: make(chan event.GenericEvent), added: make(chan struct{}, 1), orphans: map[protocol.SetReference]*orphan{},
	}
}

// setDeleted adds the run of a deleted set.
func (c *orphanCollector) setDeleted(set *v1alpha1.SidecarSet) {
	c.addOrphan(reference(set), set.Generation)
}

func (c *orphanCollector) addOrphan(set protocol.SetReference, generation int64) {
	c.mu.Lock()
	if c.orphans[set] == nil {
		c.orphans[set] = &orphan{generation: generation, signalAt: c.rollouts.clock.Now(), backoff: minSignalBackoff}
	}
	c.mu.Unlock()
	select {
	case c.added <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable.
func (c *orphanCollector) Start(ctx context.Context) error {
	timer := c.rollouts.clock.NewTimer(0)
	defer timer.Stop()
	var collectAt time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.rollouts.reconnected:
			collectAt = time.Time{}
		case <-c.added:
		case <-timer.C():
		}
		select {
		case <-c.rollouts.probed:
		case <-ctx.Done():
			return nil
		}
		now := c.rollouts.clock.Now()
		if !c.rollouts.unreachable() && !now.Before(collectAt) {
			collectAt = now.Add(c.collect(ctx))
		}
		timer.Reset(min(c.signalOrphans(ctx), max(collectAt.Sub(c.rollouts.clock.Now()), minSignalBackoff)))
	}
}

// signalOrphans signals the orphans that are due, and returns the time until the next
// one is.
func (c *orphanCollector) signalOrphans(ctx context.Context) time.Duration {
	next := collectInterval
	for set, orphan := range c.snapshot() {
		if left := orphan.signalAt.Sub(c.rollouts.clock.Now()); left > 0 {
			next = min(next, left)
			continue
		}
		if c.rollouts.unreachable() {
			next = min(next, orphan.backoff)
			continue
		}
		delivered, err := c.rollouts.signal(ctx, set, protocol.GenerationSignal, protocol.GenerationInput{Generation: orphan.generation})
		if err != nil {
			c.log.Info("cannot signal the run of a deleted SidecarSet; trying again", "sidecarset", set.Name, "cause", err.Error())
		} else if !delivered {
			c.removeOrphan(set)
			continue
		}
		next = min(next, c.backOff(set))
	}
	return next
}

func (c *orphanCollector) snapshot() map[protocol.SetReference]orphan {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[protocol.SetReference]orphan, len(c.orphans))
	for set, run := range c.orphans {
		all[set] = *run
	}
	return all
}

func (c *orphanCollector) backOff(set protocol.SetReference) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	orphan := c.orphans[set]
	backoff := orphan.backoff
	orphan.signalAt, orphan.backoff = c.rollouts.clock.Now().Add(backoff), min(2*backoff, maxSignalBackoff)
	return backoff
}

func (c *orphanCollector) removeOrphan(set protocol.SetReference) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.orphans, set)
}

// collect compares the open runs of this cluster with its sets, and returns the time
// until the next comparison.
func (c *orphanCollector) collect(ctx context.Context) time.Duration {
	var page []byte
	for {
		var answer *workflowservice.ListWorkflowExecutionsResponse
		err := c.rollouts.call(ctx, "ListWorkflowExecutions", func(short context.Context) (err error) {
			answer, err = c.rollouts.client.WorkflowService().ListWorkflowExecutions(short, &workflowservice.ListWorkflowExecutionsRequest{
				Namespace: c.rollouts.namespace, PageSize: listPageSize, NextPageToken: page,
				Query: fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='Running' AND TaskQueue='%s'", protocol.RolloutWorkflow, c.rollouts.taskQueue),
			})
			return err
		})
		if err != nil {
			c.log.Info("cannot list open runs; trying again", "cause", err.Error())
			return lastRetry
		}
		for _, info := range answer.GetExecutions() {
			if err := c.compare(ctx, info); err != nil {
				c.log.Info("cannot compare a run with its SidecarSet; trying again", "workflowID", info.GetExecution().GetWorkflowId(), "cause", err.Error())
				return lastRetry
			}
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return collectInterval
		}
	}
}

// compare looks for the set of an open run, by name and UID.
func (c *orphanCollector) compare(ctx context.Context, info *workflow.WorkflowExecutionInfo) error {
	reference, ok := setOf(info.GetExecution().GetWorkflowId())
	if !ok {
		return nil
	}
	found, err := readRun(c.rollouts.converter, info)
	if err != nil {
		return err
	}
	var set v1alpha1.SidecarSet
	for _, reader := range []client.Reader{c.cache, c.live} {
		set = v1alpha1.SidecarSet{}
		err := reader.Get(ctx, types.NamespacedName{Name: reference.Name}, &set)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read SidecarSet %s: %w", reference.Name, err)
		}
		if err == nil && set.UID == reference.UID {
			c.enqueueMismatch(ctx, &set, found)
			return nil
		}
	}
	c.log.Info("a run's SidecarSet is gone", "workflowID", info.GetExecution().GetWorkflowId())
	c.addOrphan(reference, found.generation)
	return nil
}

// enqueueMismatch requeues a set whose run works on another generation.
func (c *orphanCollector) enqueueMismatch(ctx context.Context, set *v1alpha1.SidecarSet, found *run) {
	if !found.generationMismatch(set) {
		return
	}
	c.mismatches.add(set.Name)
	select {
	case c.requeues <- event.GenericEvent{Object: set.DeepCopy()}:
	case <-ctx.Done():
	}
}

// setOf parses the workflow id of a run.
func setOf(workflowID string) (protocol.SetReference, bool) {
	parts := strings.Split(workflowID, "/")
	if len(parts) != 3 {
		return protocol.SetReference{}, false
	}
	set := protocol.SetReference{Name: parts[1], UID: types.UID(parts[2])}
	return set, protocol.WorkflowID(set.Name, set.UID) == workflowID
}
