package runs

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// availability records whether Temporal takes rollouts.
type availability struct {
	endpoint
	log   logr.Logger
	clock clock.Clock
	gauge prometheus.Gauge
	// Changes gets an event when the result of AwaitProbe changes.
	Changes chan event.GenericEvent
	// reconnected gets a value each time that Temporal answers again.
	reconnected chan struct{}
	// probed is closed after the first probe, and probeNow triggers the next one.
	probed, probeNow chan struct{}

	mu sync.Mutex
	// answers counts the calls that Temporal answered.
	answers int
	// unreachableErr is set while Temporal does not answer; rejectedErr while it answers
	// and has rejected the newest start of a rollout.
	unreachableErr, rejectedErr error
	rejectedAt                  time.Time
	throttle                    throttle
}

func newAvailability(e endpoint, log logr.Logger, clock clock.Clock, gauge prometheus.Gauge) *availability {
	a := &availability{
		endpoint: e, log: log, clock: clock, gauge: gauge,
		Changes: make(chan event.GenericEvent, 1), reconnected: make(chan struct{}, 1),
		probed: make(chan struct{}), probeNow: make(chan struct{}, 1),
	}
	a.probeSoon()
	return a
}

// AwaitProbe waits for the first probe, so that a restart does not report what it cannot
// know. It returns why Temporal takes no rollouts; nil if it does.
func (a *availability) AwaitProbe(ctx context.Context) error {
	select {
	case <-a.probed:
	case <-ctx.Done():
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unavailable()
}

// Unreachable reports whether Temporal does not answer.
func (a *availability) Unreachable() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unreachableErr != nil
}

// Throttled returns for how long the operator makes no calls.
func (a *availability) Throttled() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.throttle.until.Sub(a.clock.Now())
}

// unavailable returns why Temporal takes no rollouts; nil if it does. The caller has
// locked mu.
func (a *availability) unavailable() error {
	switch {
	case a.unreachableErr != nil:
		return a.unreachableErr
	case a.throttle.reportable():
		return ThrottledError{a.address, a.namespace}
	}
	return a.rejectedErr
}

func (a *availability) answered() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answers
}

// recordAnswer records what the result of a call shows about Temporal as a whole. A call
// without an answer shows nothing: the shard of one run may be slow. The probe decides.
func (a *availability) recordAnswer(err error) {
	if IsUnreachable(err) {
		a.log.V(1).Info("no answer from Temporal", "address", a.address, "cause", err.Error())
		return
	}
	throttled := IsThrottled(err)
	if throttled {
		a.log.V(1).Info("Temporal throttles", "address", a.address, "cause", err.Error())
	}
	a.update(func() {
		a.answers++
		a.unreachableErr = nil
		if throttled {
			a.throttle.extend(a.clock.Now())
		} else {
			a.throttle.succeeded(a.clock.Now())
		}
	})
}

// recordStart records the answer to the start of a rollout: a rejection, or nil.
func (a *availability) recordStart(err error) {
	a.update(func() {
		if a.rejectedErr = nil; err != nil {
			a.rejectedErr, a.rejectedAt = a.rejectedError(err), a.clock.Now()
		}
	})
}

func (a *availability) probeSoon() {
	select {
	case a.probeNow <- struct{}{}:
	default:
	}
}

// update changes what is recorded. It sends an event if that changes whether, or why not,
// Temporal takes rollouts.
func (a *availability) update(change func()) {
	a.mu.Lock()
	before, wasUnreachable := a.unavailable(), a.unreachableErr != nil
	change()
	after, reconnected := a.unavailable(), wasUnreachable && a.unreachableErr == nil
	a.mu.Unlock()

	available := 1.0
	if after != nil {
		available = 0
	}
	a.gauge.Set(available)
	if reconnected {
		select {
		case a.reconnected <- struct{}{}:
		default:
		}
	}
	if errorText(before) == errorText(after) {
		return
	}
	if after != nil {
		a.log.Info("Temporal takes no rollouts", "cause", after.Error())
	} else {
		a.log.Info("Temporal takes rollouts again")
	}
	select {
	case a.Changes <- event.GenericEvent{}:
	default: // one is in the channel already
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
