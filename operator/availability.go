package operator

import (
	"context"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/temporal"
)

const (
	// probeInterval is the time between two probes while Temporal answers, and
	// reconnectInterval while it does not.
	probeInterval     = 5 * time.Second
	reconnectInterval = time.Second
)

// NeedLeaderElection makes standbys probe too: without, their metric would show
// Temporal as unavailable.
func (c *rolloutClient) NeedLeaderElection() bool { return false }

// Start probes Temporal until ctx ends. It implements manager.Runnable.
func (c *rolloutClient) Start(ctx context.Context) error {
	timer := c.clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.probeNow:
		case <-timer.C():
		}
		c.probe(ctx)
		c.probedOnce.Do(func() { close(c.probed) })
		interval := probeInterval
		if c.unreachable() {
			interval = reconnectInterval
		}
		timer.Reset(interval)
	}
}

func (c *rolloutClient) probe(ctx context.Context) {
	err := c.callNow(ctx, "DescribeNamespace", func(short context.Context) error {
		_, err := c.client.WorkflowService().DescribeNamespace(short, &workflowservice.DescribeNamespaceRequest{Namespace: c.namespace})
		return err
	})
	if ctx.Err() != nil || isUnreachable(err) || isThrottle(err) {
		return
	}
	// What has a cause, such as a wrong API key, holds for every call. The start of a
	// rollout shows other errors of the namespace better, and is retried until it succeeds.
	cause, _ := temporal.Explain(err)
	c.update(func() {
		if cause != "" {
			c.refusedErr, c.refusedAt = c.refusedError(err), c.clock.Now()
		} else if c.clock.Since(c.refusedAt) > 2*lastRetry {
			c.refusedErr = nil
		}
	})
	if err == nil {
		c.ensureAttributes(ctx)
	}
}

// recordAnswer records what the result of a call shows about Temporal as a whole.
func (c *rolloutClient) recordAnswer(err error) {
	switch {
	case isUnreachable(err):
		c.log.V(1).Info("no answer from Temporal", "address", c.address, "cause", err.Error())
		c.update(func() { c.unreachableErr, c.attributesEnsured = c.unreachableError(err), false })
		c.probeSoon()
	case isThrottle(err):
		c.log.V(1).Info("Temporal throttles", "address", c.address, "cause", err.Error())
		c.update(func() {
			c.unreachableErr = nil
			c.throttle.extend(c.clock.Now())
		})
	default:
		c.update(func() {
			c.unreachableErr = nil
			c.throttle.succeeded(c.clock.Now())
		})
	}
}

func (c *rolloutClient) probeSoon() {
	select {
	case c.probeNow <- struct{}{}:
	default:
	}
}

// awaitProbe waits for the first probe, so that a restart does not report what it cannot
// know, and returns why Temporal takes no rollouts; nil if it does.
func (c *rolloutClient) awaitProbe(ctx context.Context) error {
	select {
	case <-c.probed:
	case <-ctx.Done():
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unavailable()
}

// unreachable reports whether Temporal did not answer the last call.
func (c *rolloutClient) unreachable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unreachableErr != nil
}

// throttled returns for how long no calls are to be made.
func (c *rolloutClient) throttled() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.throttle.until.Sub(c.clock.Now())
}

// unavailable returns why Temporal takes no rollouts; nil if it does. The caller holds
// mu.
func (c *rolloutClient) unavailable() error {
	switch {
	case c.unreachableErr != nil:
		return c.unreachableErr
	case c.throttle.reportable():
		return throttlingError{c.address, c.namespace}
	}
	return c.refusedErr
}

// update changes what is recorded about Temporal, and enqueues the sets that it concerns if
// that changes whether, or why not, it takes rollouts.
func (c *rolloutClient) update(change func()) {
	c.mu.Lock()
	before, wasUnreachable := c.unavailable(), c.unreachableErr != nil
	change()
	after, reconnected := c.unavailable(), wasUnreachable && c.unreachableErr == nil
	c.mu.Unlock()

	available := 1.0
	if after != nil {
		available = 0
	}
	c.metrics.temporalAvailable.Set(available)
	if reconnected {
		select {
		case c.reconnected <- struct{}{}:
		default:
		}
	}
	if errorText(before) == errorText(after) {
		return
	}
	if after != nil {
		c.log.Info("Temporal takes no rollouts", "cause", after.Error())
	} else {
		c.log.Info("Temporal takes rollouts again")
	}
	select {
	case c.changes <- event.GenericEvent{}:
	default: // one is in the channel already
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
