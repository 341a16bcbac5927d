package runs

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/outrigger/outrigger/temporal"
)

const (
	// probeInterval is the time between two probes while Temporal answers, and
	// reconnectInterval while it does not.
	probeInterval     = 5 * time.Second
	reconnectInterval = time.Second
	// rejectionTTL is how long a rejection is reported without another one. It is
	// longer than reconciles pause between retries.
	rejectionTTL = 30 * time.Second
)

// prober finds out whether Temporal answers.
type prober struct {
	*connection
	once sync.Once
	// late is set while the last probe timed out, and attributesEnsured once the search
	// attributes are registered, or cannot be. Only probes use them.
	late, attributesEnsured bool
}

// NeedLeaderElection makes standbys probe, too: their metric would show Temporal as
// unavailable otherwise.
func (p *prober) NeedLeaderElection() bool { return false }

// Start probes Temporal until ctx ends. It implements manager.Runnable.
func (p *prober) Start(ctx context.Context) error {
	timer := p.clock.NewTimer(probeInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.probeNow:
		case <-timer.C():
		}
		p.probe(ctx)
		p.once.Do(func() { close(p.probed) })
		interval := probeInterval
		if p.Unreachable() {
			interval = reconnectInterval
		}
		timer.Reset(interval)
	}
}

func (p *prober) probe(ctx context.Context) {
	before := p.answered()
	_, err := callNow(ctx, p.connection, "DescribeNamespace", p.client.WorkflowService().DescribeNamespace,
		&workflowservice.DescribeNamespaceRequest{Namespace: p.namespace})
	if ctx.Err() != nil {
		return
	}
	if temporal.IsUnreachable(err) {
		p.recordUnanswered(err, p.answered() == before)
		return
	}
	p.late = false
	if IsThrottled(err) {
		return
	}
	// An error with a known cause, such as a wrong API key, holds for every call. The
	// start of a rollout shows other errors better, and is retried until it succeeds.
	cause, _ := temporal.Explain(err)
	p.update(func() {
		if cause != "" {
			p.rejectedErr, p.rejectedAt = p.rejectedError(err), p.clock.Now()
		} else if p.clock.Since(p.rejectedAt) > rejectionTTL {
			p.rejectedErr = nil
		}
	})
	if err == nil {
		p.ensureAttributes(ctx)
	}
}

// recordUnanswered records that Temporal is unreachable, unless it answered other calls
// since the probe was sent. A single late probe may only be slow.
func (p *prober) recordUnanswered(err error, silent bool) {
	again := temporal.IsLate(err) && !p.late && !p.Unreachable()
	p.late = temporal.IsLate(err)
	switch {
	case !silent:
	case again:
		p.probeSoon()
	default:
		p.attributesEnsured = false
		p.update(func() { p.unreachableErr = p.unreachableError(err) })
	}
}

// ensureAttributes registers missing search attributes, once after each time that
// Temporal was unreachable: it may have lost its data. The operator may lack the right to
// register them. Then the start of a rollout fails, and its error names the remedy.
func (p *prober) ensureAttributes(ctx context.Context) {
	if p.attributesEnsured {
		return
	}
	err := p.registerAttributes(ctx)
	p.attributesEnsured = !IsThrottled(err)
	if err != nil && p.attributesEnsured {
		p.log.Info("cannot make sure that the search attributes are registered", "cause", err.Error(), "remedy", attributesRemedy)
	}
}
