package operator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/go-logr/logr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// sweepEvery is how often open runs are compared with the sets.
	sweepEvery = 5 * time.Minute
	// A run whose set is gone is told so until it has ended, at first this
	// often: its worker may not know yet.
	firstFarewell = time.Second
	lastFarewell  = 5 * time.Minute
	// sweepPage is how many runs are listed at once.
	sweepPage = 500
)

// sweeper ends the runs of sets that are gone, and points out sets whose runs
// are at odds with them. It works for the leader alone.
type sweeper struct {
	rollouts *rolloutClient
	cache    client.Reader
	// live reads past the cache.
	live     client.Reader
	suspects *nameSet
	found    chan event.GenericEvent
	log      logr.Logger

	wake chan struct{}
	mu   sync.Mutex
	// farewells are the sets whose runs are yet to end.
	farewells map[protocol.SetReference]*farewell
}

// farewell is word to a run that its set is gone.
type farewell struct {
	generation int64
	due        time.Time
	pause      time.Duration
}

func newSweeper(rollouts *rolloutClient, cache, live client.Reader, suspects *nameSet) *sweeper {
	return &sweeper{
		rollouts: rollouts, cache: cache, live: live, suspects: suspects, log: rollouts.log.WithName("sweep"),
		found: make(chan event.GenericEvent), wake: make(chan struct{}, 1), farewells: map[protocol.SetReference]*farewell{},
	}
}

// gone notes that a set was deleted.
func (s *sweeper) gone(set *v1alpha1.SidecarSet) { s.bid(reference(set), set.Generation) }

func (s *sweeper) bid(set protocol.SetReference, generation int64) {
	s.mu.Lock()
	if s.farewells[set] == nil {
		s.farewells[set] = &farewell{generation: generation, due: s.rollouts.now(), pause: firstFarewell}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Start works until ctx ends.
func (s *sweeper) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var sweepAt time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.rollouts.back:
			sweepAt = time.Time{}
		case <-s.wake:
		case <-timer.C:
		}
		select {
		case <-s.rollouts.probed:
		case <-ctx.Done():
			return nil
		}
		now := s.rollouts.now()
		if !s.rollouts.unreachable() && !now.Before(sweepAt) {
			sweepAt = now.Add(s.sweep(ctx))
		}
		timer.Reset(min(s.deliver(ctx), max(sweepAt.Sub(s.rollouts.now()), firstFarewell)))
	}
}

// deliver tells the runs whose time has come that their sets are gone, and
// returns when the next one's has.
func (s *sweeper) deliver(ctx context.Context) time.Duration {
	next := sweepEvery
	for set, one := range s.pending() {
		if left := one.due.Sub(s.rollouts.now()); left > 0 {
			next = min(next, left)
			continue
		}
		if s.rollouts.unreachable() {
			next = min(next, one.pause)
			continue
		}
		delivered, err := s.rollouts.signal(ctx, set, protocol.GenerationSignal, protocol.GenerationInput{Generation: one.generation})
		if err != nil {
			s.log.Info("cannot tell the run of a deleted SidecarSet; trying again", "set", set.Name, "cause", err.Error())
		} else if !delivered {
			s.end(set)
			continue
		}
		next = min(next, s.postpone(set))
	}
	return next
}

func (s *sweeper) pending() map[protocol.SetReference]farewell {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[protocol.SetReference]farewell, len(s.farewells))
	for set, one := range s.farewells {
		all[set] = *one
	}
	return all
}

func (s *sweeper) postpone(set protocol.SetReference) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.farewells[set]
	pause := one.pause
	one.due, one.pause = s.rollouts.now().Add(pause), min(2*pause, lastFarewell)
	return pause
}

func (s *sweeper) end(set protocol.SetReference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.farewells, set)
}

// sweep compares the open runs of this cluster with its sets, and returns when to
// do so again.
func (s *sweeper) sweep(ctx context.Context) time.Duration {
	var page []byte
	for {
		var answer *workflowservice.ListWorkflowExecutionsResponse
		err := s.rollouts.call(ctx, "ListWorkflowExecutions", func(short context.Context) (err error) {
			answer, err = s.rollouts.client.WorkflowService().ListWorkflowExecutions(short, &workflowservice.ListWorkflowExecutionsRequest{
				Namespace: s.rollouts.namespace, PageSize: sweepPage, NextPageToken: page,
				Query: fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='Running' AND TaskQueue='%s'", protocol.RolloutWorkflow, s.rollouts.taskQueue),
			})
			return err
		})
		if err != nil {
			s.log.Info("cannot list open runs; trying again", "cause", err.Error())
			return lastRetry
		}
		for _, info := range answer.GetExecutions() {
			if err := s.compare(ctx, info); err != nil {
				s.log.Info("cannot compare a run with its SidecarSet; trying again", "run", info.GetExecution().GetWorkflowId(), "cause", err.Error())
				return lastRetry
			}
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return sweepEvery
		}
	}
}

// compare looks for the set of an open run: this incarnation of it.
func (s *sweeper) compare(ctx context.Context, info *workflow.WorkflowExecutionInfo) error {
	reference, ok := setOf(info.GetExecution().GetWorkflowId())
	if !ok {
		return nil
	}
	found, err := readRun(info)
	if err != nil {
		return err
	}
	var set v1alpha1.SidecarSet
	for _, reader := range []client.Reader{s.cache, s.live} {
		set = v1alpha1.SidecarSet{}
		err := reader.Get(ctx, types.NamespacedName{Name: reference.Name}, &set)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read SidecarSet %s: %w", reference.Name, err)
		}
		if err == nil && set.UID == reference.UID {
			s.pointOut(ctx, &set, found)
			return nil
		}
	}
	s.log.Info("a run's SidecarSet is gone", "run", info.GetExecution().GetWorkflowId())
	s.bid(reference, found.generation)
	return nil
}

// pointOut has a set looked at whose run works on another generation.
func (s *sweeper) pointOut(ctx context.Context, set *v1alpha1.SidecarSet, found *run) {
	if !found.generationMismatch(set) {
		return
	}
	s.suspects.add(set.Name)
	select {
	case s.found <- event.GenericEvent{Object: set.DeepCopy()}:
	case <-ctx.Done():
	}
}

// setOf reads the set from the id of a run.
func setOf(workflowID string) (protocol.SetReference, bool) {
	parts := strings.Split(workflowID, "/")
	if len(parts) != 3 {
		return protocol.SetReference{}, false
	}
	set := protocol.SetReference{Name: parts[1], UID: types.UID(parts[2])}
	return set, protocol.WorkflowID(set.Name, set.UID) == workflowID
}
