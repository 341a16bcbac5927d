package runs

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// callPatience is how long a reconcile waits for Temporal, which answers within
	// milliseconds unless it is slow.
	callPatience = 100 * time.Millisecond
	// maxCalls is how many SidecarSets call a slow Temporal at once.
	maxCalls = 32
)

// Calls to Temporal that reconciles have started, at most one for each SidecarSet. A slow
// call continues after its reconcile, and requeues the SidecarSet at its end: meanwhile
// the few workers of the controller write the status of others.
type Calls[Outcome any] struct {
	// Ended gets the SidecarSets whose reconciles did not wait.
	Ended chan event.GenericEvent
	slots chan struct{}

	mu    sync.Mutex
	calls map[string]*Call[Outcome]
	// unanswered counts the calls about a SidecarSet since one was answered.
	unanswered map[string]int
}

// Call is a call about one SidecarSet.
type Call[Outcome any] struct {
	StartedAt time.Time
	// Before is what was known of the run before the call.
	Before Outcome
	// Out and Err may be read once Take has returned true.
	Out Outcome
	Err error

	set  *v1alpha1.SidecarSet
	done chan struct{}
	// left is set once no reconcile waits for the call.
	left bool
}

// NewCalls returns no calls.
func NewCalls[Outcome any]() *Calls[Outcome] {
	return &Calls[Outcome]{
		Ended: make(chan event.GenericEvent), slots: make(chan struct{}, maxCalls),
		calls: map[string]*Call[Outcome]{}, unanswered: map[string]int{},
	}
}

// Of returns the call about a SidecarSet that is in progress, or that has ended and was
// not taken; nil without one.
func (c *Calls[Outcome]) Of(set string) *Call[Outcome] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[set]
}

// Start starts a call, and waits for its end for at most callPatience. The call continues
// until ctx ends, which outlives the reconcile.
func (c *Calls[Outcome]) Start(ctx context.Context, set *v1alpha1.SidecarSet, now time.Time, before Outcome, do func() (Outcome, error)) *Call[Outcome] {
	call := &Call[Outcome]{set: set, StartedAt: now, Before: before, done: make(chan struct{})}
	c.mu.Lock()
	c.calls[set.Name] = call
	c.mu.Unlock()
	go c.run(ctx, call, do)
	patience, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	select {
	case <-call.done:
	case <-patience.Done():
	}
	return call
}

func (c *Calls[Outcome]) run(ctx context.Context, call *Call[Outcome], do func() (Outcome, error)) {
	select {
	case c.slots <- struct{}{}:
		call.Out, call.Err = do()
		<-c.slots
	case <-ctx.Done():
		call.Err = ctx.Err()
	}
	close(call.done)
	c.mu.Lock()
	left := call.left
	c.mu.Unlock()
	if left {
		select {
		case c.Ended <- event.GenericEvent{Object: call.set}:
		case <-ctx.Done():
		}
	}
}

// Take removes a call if it has ended. Otherwise its end requeues the SidecarSet.
func (c *Calls[Outcome]) Take(call *Call[Outcome]) (taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-call.done:
	default:
		call.left = true
		return false
	}
	delete(c.calls, call.set.Name)
	if IsUnreachable(call.Err) {
		c.unanswered[call.set.Name]++
	} else {
		delete(c.unanswered, call.set.Name)
	}
	return true
}

// Unanswered returns how many calls about a SidecarSet were not answered in a row.
func (c *Calls[Outcome]) Unanswered(set string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unanswered[set]
}

// Forget forgets a SidecarSet.
func (c *Calls[Outcome]) Forget(set string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, set)
	delete(c.unanswered, set)
}

// About reports whether the call was about the SidecarSet as it is now.
func (c *Call[Outcome]) About(set *v1alpha1.SidecarSet) bool {
	return c.set.UID == set.UID && c.set.Generation == set.Generation
}
