package runs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	sdk "go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/temporal"
)

// callTimeout limits each call to Temporal.
const callTimeout = 3 * time.Second

// listCall is the call that lists runs. Temporal has a separate, low rate limit for this call, so throttling
// of listCall does not delay other calls.
const listCall = "ListWorkflowExecutions"

// connection makes calls to Temporal, and records whether Temporal accepts rollouts.
type connection struct {
	endpoint
	client  sdk.Client
	log     logr.Logger
	clock   clock.Clock
	metrics *Metrics
	// Changes receives an event when the result of AwaitProbe changes.
	Changes chan event.GenericEvent
	// reconnected receives a value each time that Temporal becomes reachable again.
	reconnected chan struct{}
	// probed is closed after the first probe. probeNow triggers the next probe.
	probed, probeNow chan struct{}

	mu sync.Mutex
	// answers counts the calls that Temporal answered.
	answers int
	// unreachableErr is set while Temporal does not respond. rejectedErr is set while Temporal responds, but
	// rejects the start of every rollout.
	unreachableErr, rejectedErr error
	rejectedAt                  time.Time
	throttle                    throttle
}

func newConnection(client sdk.Client, o Options, metrics *Metrics) *connection {
	c := &connection{
		endpoint: endpoint{o.Temporal.Address, o.Temporal.Namespace}, client: client, log: o.Logger, clock: o.Clock, metrics: metrics,
		Changes: make(chan event.GenericEvent, 1), reconnected: make(chan struct{}, 1),
		probed: make(chan struct{}), probeNow: make(chan struct{}, 1),
	}
	c.probeSoon()
	return c
}

// AwaitProbe waits for the first probe, so that an operator does not report an unknown state after its start.
// AwaitProbe returns an error if Temporal does not accept rollouts, or nil if ctx ends first.
func (c *connection) AwaitProbe(ctx context.Context) error {
	select {
	case <-c.probed:
	case <-ctx.Done():
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unavailable()
}

// Unreachable reports whether Temporal does not respond.
func (c *connection) Unreachable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unreachableErr != nil
}

// Throttled returns the remaining time of the backoff after Temporal has throttled a call. Without throttling,
// the result is zero or negative.
func (c *connection) Throttled() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.throttle.until.Sub(c.clock.Now())
}

// unavailable returns an error if Temporal accepts no rollouts. The caller holds mu.
func (c *connection) unavailable() error {
	switch {
	case c.unreachableErr != nil:
		return c.unreachableErr
	case c.throttle.reportable():
		return ThrottledError{c.address, c.namespace}
	}
	return c.rejectedErr
}

func (c *connection) answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers
}

// recordAnswer records the result of a call if the result applies to all calls. A single unanswered call does
// not mean that Temporal is unreachable, because only the shard of one run may be slow. The next probe
// determines whether Temporal is reachable.
func (c *connection) recordAnswer(err error) {
	if temporal.IsUnreachable(err) {
		c.log.V(1).Info("no answer from Temporal", "address", c.address, "cause", err.Error())
		return
	}
	throttled := IsThrottled(err)
	if throttled {
		c.log.V(1).Info("Temporal throttles", "address", c.address, "cause", err.Error())
	}
	c.update(func() {
		c.answers++
		c.unreachableErr = nil
		if throttled {
			c.throttle.extend(c.clock.Now())
		} else {
			c.throttle.succeeded(c.clock.Now())
		}
	})
}

// recordStart records whether Temporal accepts the starts of rollouts. err is nil if Temporal accepted the
// newest start.
func (c *connection) recordStart(err error) {
	c.update(func() {
		if c.rejectedErr = nil; err != nil {
			c.rejectedErr, c.rejectedAt = c.rejectedError(err), c.clock.Now()
		}
	})
}

func (c *connection) probeSoon() { sendUnlessFull(c.probeNow, struct{}{}) }

// sendUnlessFull sends a value to a channel of capacity one. If the channel is full, the value is dropped,
// because one value is enough.
func sendUnlessFull[T any](to chan<- T, value T) {
	select {
	case to <- value:
	default:
	}
}

// update applies a change to the recorded state. update sends an event if the change affects the result of
// unavailable.
func (c *connection) update(change func()) {
	c.mu.Lock()
	before, wasUnreachable := c.unavailable(), c.unreachableErr != nil
	change()
	after, reconnected := c.unavailable(), wasUnreachable && c.unreachableErr == nil
	c.mu.Unlock()

	available := 1.0
	if after != nil {
		available = 0
	}
	c.metrics.available.Set(available)
	if reconnected {
		sendUnlessFull(c.reconnected, struct{}{})
	}
	if fmt.Sprint(before) == fmt.Sprint(after) {
		return
	}
	if after != nil {
		c.log.Info("Temporal accepts no rollouts", "cause", after.Error())
	} else {
		c.log.Info("Temporal is available again")
	}
	sendUnlessFull(c.Changes, event.GenericEvent{})
}

// method is a method of one of Temporal's services.
type method[Request, Response any] = func(context.Context, Request, ...grpc.CallOption) (Response, error)

// call makes one call to Temporal. During a backoff, call returns a ThrottledError instead. call bypasses the
// retries of the SDK, because the SDK would retry a throttled call until the deadline, and then return only
// the deadline as the error.
func call[Request, Response any](ctx context.Context, c *connection, name string, do method[Request, Response], request Request) (response Response, err error) {
	if c.Throttled() > 0 {
		return response, ThrottledError{c.address, c.namespace}
	}
	response, err = callNow(ctx, c, name, do, request)
	if ctx.Err() == nil && temporal.IsUnreachable(err) {
		c.probeSoon()
	}
	return response, err
}

func callNow[Request, Response any](ctx context.Context, c *connection, name string, do method[Request, Response], request Request) (Response, error) {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := do(short, request)
	c.metrics.calls.WithLabelValues(name, resultOf(err)).Inc()
	if ctx.Err() == nil && (name != listCall || !IsThrottled(err)) {
		c.recordAnswer(err)
	}
	return response, err
}
