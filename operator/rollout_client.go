package operator

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	sdk "go.temporal.io/sdk/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// callTimeout bounds each call to Temporal.
	callTimeout = 3 * time.Second
	// Temporal is asked how it is this often, while it answers and while not.
	probeWhileUp   = 5 * time.Second
	probeWhileDown = time.Second
	// While Temporal throttles it is left alone, each time twice as long.
	shortestThrottle = time.Second
	longestThrottle  = 30 * time.Second
)

// rolloutClient starts and describes rollouts in Temporal, and records
// whether Temporal can take them.
type rolloutClient struct {
	client    sdk.Client
	address   string
	namespace string
	taskQueue string
	ui        string
	log       logr.Logger
	metrics   *metrics
	now       func() time.Time
	// changes gets an event when err changes.
	changes chan event.GenericEvent
	// back gets a word each time that Temporal answers again.
	back chan struct{}
	// probed is closed once Temporal has been asked for the first time.
	probed     chan struct{}
	probedOnce sync.Once
	// hurry has the next probe made at once.
	hurry chan struct{}

	mu sync.Mutex
	// away says that Temporal does not answer; refusal, that it does and
	// refused the newest start of a rollout.
	away, refusal error
	refusedAt     time.Time
	throttle      throttle
	// prepared is true once search attributes were seen to.
	prepared bool
	queues   queues
}

func newRolloutClient(client sdk.Client, o Options, taskQueue string, metrics *metrics, now func() time.Time) *rolloutClient {
	return &rolloutClient{
		client:    client,
		address:   o.Temporal.Address,
		namespace: o.Temporal.Namespace,
		taskQueue: taskQueue,
		ui:        o.TemporalUI,
		log:       o.Logger.WithName("rollouts"),
		metrics:   metrics,
		now:       now,
		changes:   make(chan event.GenericEvent, 1),
		back:      make(chan struct{}, 1),
		probed:    make(chan struct{}),
		hurry:     make(chan struct{}, 1),
	}
}

// NeedLeaderElection lets standbys watch too: their metric would say otherwise
// that Temporal is away.
func (c *rolloutClient) NeedLeaderElection() bool { return false }

// Start asks Temporal from time to time whether it is there.
func (c *rolloutClient) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.hurry:
		case <-timer.C:
		}
		c.probe(ctx)
		c.probedOnce.Do(func() { close(c.probed) })
		pause := probeWhileUp
		if c.unreachable() {
			pause = probeWhileDown
		}
		timer.Reset(pause)
	}
}

func (c *rolloutClient) probe(ctx context.Context) {
	err := c.callNow(ctx, "DescribeNamespace", func(short context.Context) error {
		_, err := c.client.WorkflowService().DescribeNamespace(short, &workflowservice.DescribeNamespaceRequest{Namespace: c.namespace})
		return err
	})
	if ctx.Err() != nil || isAway(err) || isThrottle(err) {
		return
	}
	// Whatever else it says about the namespace, the start of a rollout says better; and
	// that is retried as long as there is one to start.
	c.note(func() {
		if c.now().Sub(c.refusedAt) > 2*lastRetry {
			c.refusal = nil
		}
	})
	if err == nil {
		c.prepareOnce(ctx)
	}
}

// call makes one call to Temporal, unless that wants to be left alone. It is
// made past the SDK's own retries: they would go on against a throttling
// server until the deadline, and then tell of the deadline alone.
func (c *rolloutClient) call(ctx context.Context, operation string, do func(context.Context) error) error {
	if left := c.throttled(); left > 0 {
		return notAsked{left}
	}
	return c.callNow(ctx, operation, do)
}

func (c *rolloutClient) callNow(ctx context.Context, operation string, do func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := do(short)
	c.metrics.temporalCalls.WithLabelValues(operation, resultOf(err)).Inc()
	if ctx.Err() == nil {
		c.noteAnswer(err)
	}
	return err
}

// noteAnswer remembers what an answer tells about Temporal as a whole.
func (c *rolloutClient) noteAnswer(err error) {
	switch {
	case isAway(err):
		c.log.V(1).Info("no answer from Temporal", "address", c.address, "cause", err.Error())
		c.note(func() { c.away, c.prepared = c.sayAway(), false })
		c.probeSoon()
	case isThrottle(err):
		c.log.V(1).Info("Temporal throttles", "address", c.address, "cause", err.Error())
		c.note(func() {
			c.away = nil
			c.throttle.hit(c.now())
		})
	default:
		c.note(func() {
			c.away = nil
			c.throttle.passed(c.now())
		})
	}
}

func (c *rolloutClient) probeSoon() {
	select {
	case c.hurry <- struct{}{}:
	default:
	}
}

// wait returns why Temporal takes no rollouts, nil if it does. It waits for the
// first probe, so that a restart does not claim what it cannot know.
func (c *rolloutClient) wait(ctx context.Context) error {
	select {
	case <-c.probed:
	case <-ctx.Done():
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble()
}

// unreachable reports whether a call would be in vain.
func (c *rolloutClient) unreachable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away != nil
}

// throttled is how long Temporal is left alone.
func (c *rolloutClient) throttled() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.throttle.until.Sub(c.now())
}

func (c *rolloutClient) trouble() error {
	switch {
	case c.away != nil:
		return c.away
	case c.throttle.lasting():
		return throttling{c.address, c.namespace}
	}
	return c.refusal
}

// note changes what is known. Everybody hears of it if that changes what one
// says about Temporal.
func (c *rolloutClient) note(change func()) {
	c.mu.Lock()
	before, wasAway := c.trouble(), c.away != nil
	change()
	after, isBack := c.trouble(), wasAway && c.away == nil
	c.mu.Unlock()

	available := 1.0
	if after != nil {
		available = 0
	}
	c.metrics.temporalAvailable.Set(available)
	if isBack {
		select {
		case c.back <- struct{}{}:
		default:
		}
	}
	if text(before) == text(after) {
		return
	}
	if after != nil {
		c.log.Info("Temporal takes no rollouts", "cause", after.Error())
	} else {
		c.log.Info("Temporal takes rollouts again")
	}
	select {
	case c.changes <- event.GenericEvent{}:
	default: // one is waiting to be heard
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func isAway(err error) bool {
	var unavailable *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	return errors.As(err, &unavailable) || errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded)
}

// isThrottle reports whether Temporal has too much to do. A workflow that is
// busy says nothing about others.
func isThrottle(err error) bool {
	var exhausted *serviceerror.ResourceExhausted
	var unmade notAsked
	return errors.As(err, &unmade) || errors.As(err, &exhausted) && exhausted.Cause != enums.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW
}

// sayAway leaves the cause to the log: its words change from one attempt to
// the next, and these go into conditions.
func (c *rolloutClient) sayAway() error {
	return fmt.Errorf("Temporal at %s does not answer", c.address) //nolint:staticcheck // a name comes first
}

func (c *rolloutClient) sayRefused(err error) error {
	remedy := "does the namespace exist, and may the operator use it?"
	if isUnknownAttribute(err) {
		remedy = attributesRemedy(c.address, c.namespace)
	}
	return fmt.Errorf("Temporal at %s, namespace %s, refuses rollouts: %w (%s)", c.address, c.namespace, err, remedy) //nolint:staticcheck // a name comes first
}

func isUnknownAttribute(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "search attribute") || strings.Contains(err.Error(), protocol.SidecarSetAttribute))
}

// url of a workflow in the web UI; empty without one.
func (c *rolloutClient) url(workflowID string) string {
	if c.ui == "" {
		return ""
	}
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", strings.TrimSuffix(c.ui, "/"), url.PathEscape(c.namespace), url.PathEscape(workflowID))
}
