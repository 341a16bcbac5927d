package runs

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/outrigger/outrigger/temporal"
)

const (
	// probeInterval is the time between two probes while Temporal responds. reconnectInterval is the time
	// between two probes while Temporal does not respond.
	probeInterval     = 2 * time.Second
	reconnectInterval = time.Second
	// rejectionTTL is the time for which a rejection is reported if no further rejection follows. rejectionTTL
	// is longer than the longest delay between two retries of a reconcile.
	rejectionTTL = 30 * time.Second
)

// prober checks whether Temporal responds.
type prober struct {
	*connection
	once sync.Once
	// late is set if the last probe timed out. attributesEnsured is set once the search attributes are
	// registered, or cannot be registered. Only the goroutine of Start uses these fields.
	late, attributesEnsured bool
}

// NeedLeaderElection returns false, so that operators that do not lead also probe Temporal.
// Otherwise, the metric of these operators would show Temporal as unavailable.
func (p *prober) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. Start probes Temporal until ctx ends.
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
	// An error with a known cause, such as a wrong API key, applies to every call. The start of a rollout
	// reports other errors, and is retried until Temporal accepts the start.
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

// recordUnanswered records that Temporal is unreachable, unless Temporal has answered other calls since the
// probe was sent. silent is set if Temporal has answered no other calls. After the first timeout of a probe,
// recordUnanswered only triggers a second probe, because a single probe may be slow.
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

// ensureAttributes registers missing search attributes. The registration happens once at the start and once
// after each outage of Temporal, because Temporal may have lost data. If the operator has no permission to
// register the attributes, the start of a rollout fails with an error that contains the remedy.
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
