package operator

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// callTimeout is the maximum time that a reconcile waits for a call to Temporal. Temporal usually
	// responds within milliseconds.
	callTimeout = 100 * time.Millisecond
	// maxCalls is the maximum number of calls to Temporal in progress at once.
	maxCalls = 32
)

// calls contains the calls to Temporal that reconciles have started, at most one call for each SidecarSet. A
// slow call continues after the end of the reconcile, and requeues the SidecarSet when the call ends. Slow
// calls therefore do not block the few reconcile workers.
type calls struct {
	// ended receives the SidecarSet of a call that ended after its reconcile.
	ended chan event.GenericEvent
	slots chan struct{}

	mu     sync.Mutex
	byName map[string]*call
	// unanswered maps the name of a SidecarSet to the number of consecutive calls without an answer.
	unanswered map[string]int
}

// call is a call to Temporal about one SidecarSet.
type call struct {
	set       *v1alpha1.SidecarSet
	startedAt time.Time
	// before is the outcome that status shows until the call ends.
	before outcome
	// out and err may be read once take has returned true.
	out  outcome
	err  error
	done chan struct{}
	// left is set if a reconcile ends before the call. The end of the call then requeues the SidecarSet.
	left bool
}

func newCalls() *calls {
	return &calls{
		ended: make(chan event.GenericEvent), slots: make(chan struct{}, maxCalls),
		byName: map[string]*call{}, unanswered: map[string]int{},
	}
}

// of returns the call for set, or nil. of also returns a call that has ended, until take removes the call.
func (c *calls) of(set string) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byName[set]
}

// start calls do in a goroutine, and waits at most callTimeout for do to return. A slower do continues in the
// background. ctx must outlive the reconcile, because the end of ctx cancels the call.
func (c *calls) start(ctx context.Context, started *call, do func() (outcome, error)) {
	started.done = make(chan struct{})
	c.mu.Lock()
	c.byName[started.set.Name] = started
	c.mu.Unlock()
	go c.run(ctx, started, do)
	waiting, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case <-started.done:
	case <-waiting.Done():
	}
}

func (c *calls) run(ctx context.Context, started *call, do func() (outcome, error)) {
	select {
	case c.slots <- struct{}{}:
		started.out, started.err = do()
		<-c.slots
	case <-ctx.Done():
		started.err = ctx.Err()
	}
	close(started.done)
	c.mu.Lock()
	left := started.left
	c.mu.Unlock()
	if left {
		select {
		case c.ended <- event.GenericEvent{Object: started.set}:
		case <-ctx.Done():
		}
	}
}

// take removes started and returns true if started has ended. Otherwise, take returns false, and the end of
// the call requeues the SidecarSet.
func (c *calls) take(started *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-started.done:
	default:
		started.left = true
		return false
	}
	delete(c.byName, started.set.Name)
	if temporal.IsUnreachable(started.err) {
		c.unanswered[started.set.Name]++
	} else {
		delete(c.unanswered, started.set.Name)
	}
	return true
}

// unansweredInARow returns the number of consecutive calls about set without an answer.
func (c *calls) unansweredInARow(set string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unanswered[set]
}

func (c *calls) forget(set string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byName, set)
	delete(c.unanswered, set)
}

// about reports whether the call was started for the UID and the generation of set.
func (c *call) about(set *v1alpha1.SidecarSet) bool {
	return c.set.UID == set.UID && c.set.Generation == set.Generation
}
