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

// engine is Temporal as the operator sees it: where rollouts are handed over,
// and whether it can take them.
type engine struct {
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
	// refused the newest hand-over.
	away, refusal error
	refusedAt     time.Time
	throttle      throttle
	// prepared is true once search attributes were seen to.
	prepared bool
	queues   queues
}

func newEngine(client sdk.Client, o Options, taskQueue string, metrics *metrics, now func() time.Time) *engine {
	return &engine{
		client:    client,
		address:   o.Temporal.Address,
		namespace: o.Temporal.Namespace,
		taskQueue: taskQueue,
		ui:        o.TemporalUI,
		log:       o.Logger.WithName("engine"),
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
func (e *engine) NeedLeaderElection() bool { return false }

// Start asks Temporal from time to time whether it is there.
func (e *engine) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.hurry:
		case <-timer.C:
		}
		e.probe(ctx)
		e.probedOnce.Do(func() { close(e.probed) })
		pause := probeWhileUp
		if e.unreachable() {
			pause = probeWhileDown
		}
		timer.Reset(pause)
	}
}

func (e *engine) probe(ctx context.Context) {
	err := e.callNow(ctx, "DescribeNamespace", func(short context.Context) error {
		_, err := e.client.WorkflowService().DescribeNamespace(short, &workflowservice.DescribeNamespaceRequest{Namespace: e.namespace})
		return err
	})
	if ctx.Err() != nil || isAway(err) || isThrottle(err) {
		return
	}
	// Whatever else it says about the namespace, a hand-over says better; and
	// that is tried again as long as there is something to hand over.
	e.note(func() {
		if e.now().Sub(e.refusedAt) > 2*lastRetry {
			e.refusal = nil
		}
	})
	if err == nil {
		e.prepareOnce(ctx)
	}
}

// call makes one call to Temporal, unless that wants to be left alone. It is
// made past the SDK's own retries: they would go on against a throttling
// server until the deadline, and then tell of the deadline alone.
func (e *engine) call(ctx context.Context, operation string, do func(context.Context) error) error {
	if left := e.throttled(); left > 0 {
		return notAsked{left}
	}
	return e.callNow(ctx, operation, do)
}

func (e *engine) callNow(ctx context.Context, operation string, do func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := do(short)
	e.metrics.temporalCalls.WithLabelValues(operation, resultOf(err)).Inc()
	if ctx.Err() == nil {
		e.noteAnswer(err)
	}
	return err
}

// noteAnswer remembers what an answer tells about Temporal as a whole.
func (e *engine) noteAnswer(err error) {
	switch {
	case isAway(err):
		e.log.V(1).Info("no answer from Temporal", "address", e.address, "cause", err.Error())
		e.note(func() { e.away, e.prepared = e.sayAway(), false })
		e.probeSoon()
	case isThrottle(err):
		e.log.V(1).Info("Temporal throttles", "address", e.address, "cause", err.Error())
		e.note(func() {
			e.away = nil
			e.throttle.hit(e.now())
		})
	default:
		e.note(func() {
			e.away = nil
			e.throttle.passed(e.now())
		})
	}
}

func (e *engine) probeSoon() {
	select {
	case e.hurry <- struct{}{}:
	default:
	}
}

// wait returns why Temporal takes no rollouts, nil if it does. It waits for the
// first probe, so that a restart does not claim what it cannot know.
func (e *engine) wait(ctx context.Context) error {
	select {
	case <-e.probed:
	case <-ctx.Done():
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.trouble()
}

// unreachable reports whether a call would be in vain.
func (e *engine) unreachable() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.away != nil
}

// throttled is how long Temporal is left alone.
func (e *engine) throttled() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.throttle.until.Sub(e.now())
}

func (e *engine) trouble() error {
	switch {
	case e.away != nil:
		return e.away
	case e.throttle.lasting():
		return throttling{e.address, e.namespace}
	}
	return e.refusal
}

// note changes what is known. Everybody hears of it if that changes what one
// says about Temporal.
func (e *engine) note(change func()) {
	e.mu.Lock()
	before, wasAway := e.trouble(), e.away != nil
	change()
	after, isBack := e.trouble(), wasAway && e.away == nil
	e.mu.Unlock()

	available := 1.0
	if after != nil {
		available = 0
	}
	e.metrics.engineAvailable.Set(available)
	if isBack {
		select {
		case e.back <- struct{}{}:
		default:
		}
	}
	if text(before) == text(after) {
		return
	}
	if after != nil {
		e.log.Info("Temporal takes no rollouts", "cause", after.Error())
	} else {
		e.log.Info("Temporal takes rollouts again")
	}
	select {
	case e.changes <- event.GenericEvent{}:
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
func (e *engine) sayAway() error {
	return fmt.Errorf("Temporal at %s does not answer", e.address) //nolint:staticcheck // a name comes first
}

func (e *engine) sayRefused(err error) error {
	remedy := "does the namespace exist, and may the operator use it?"
	if isUnknownAttribute(err) {
		remedy = attributesRemedy(e.address, e.namespace)
	}
	return fmt.Errorf("Temporal at %s, namespace %s, refuses rollouts: %w (%s)", e.address, e.namespace, err, remedy) //nolint:staticcheck // a name comes first
}

func isUnknownAttribute(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "search attribute") || strings.Contains(err.Error(), protocol.SidecarSetAttribute))
}

// url of a workflow in the web UI; empty without one.
func (e *engine) url(workflowID string) string {
	if e.ui == "" {
		return ""
	}
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", strings.TrimSuffix(e.ui, "/"), url.PathEscape(e.namespace), url.PathEscape(workflowID))
}
