package operator

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/operator/runs"
)

const (
	// statusTimeout is the maximum time that a write of status waits for a response from Temporal.
	statusTimeout = time.Second
	// reportedUnanswered is the number of consecutive unanswered calls about a SidecarSet after which the
	// conditions of the SidecarSet report that Temporal is unavailable. After one unanswered call, Temporal
	// may only be slow.
	reportedUnanswered = 2
)

// runStep reconciles the run of a SidecarSet with its generation. A slow call to Temporal continues after the
// reconcile. In this case, status is written twice. The first write, after statusTimeout, lacks the outcome of
// the call. The second write, after the call, contains the outcome.
type runStep struct {
	client *runs.Client
	calls  *calls
	states *runStates
	// mismatched reports whether runs.Orphans found that the run of a SidecarSet works on another generation.
	mismatched func(set string) bool
	// changed reports whether the run of a SidecarSet has changed since the last call.
	changed func(set string) bool
	clock   clock.PassiveClock
}

func (s *runStep) forget(name string) {
	s.states.Delete(name)
	s.calls.forget(name)
}

func (s *runStep) reconcile(ctx context.Context, p *pass) error {
	if p.invalid != nil {
		return nil
	}
	p.temporal = s.unavailable(ctx, p.set.Name)
	call, delay := s.calls.of(p.set.Name), time.Duration(0)
	started := call == nil
	if started {
		p.state = s.states.of(p.set)
		p.state.observeGeneration(p.set.Generation, s.clock.Now())
		p.state.recordFrozen(p.frozen())
		p.state.recordNeed(p.need())
		if s.changed(p.set.Name) {
			p.state.checkedAt = time.Time{}
			p.state.readRunAgain(s.clock.Now())
		}
		delay = s.countsDelay(p)
		call = s.start(ctx, p)
	}
	switch {
	case !s.calls.take(call):
		if left := call.startedAt.Add(statusTimeout).Sub(s.clock.Now()); left > 0 {
			p.end(left)
		}
		p.out = call.before
	case !call.about(p.set):
		p.end(time.Millisecond)
	case delay > 0 && call.err == nil && !s.client.Unreachable():
		p.end(delay)
	default:
		s.finish(ctx, p, call, started)
	}
	if p.temporal == nil {
		p.temporal = p.out.rejected
	}
	return nil
}

// start starts a call with a copy of the pass, because the call may outlive the reconcile.
func (s *runStep) start(ctx context.Context, p *pass) *call {
	asked := *p
	asked.set = p.set.DeepCopy()
	started := &call{set: asked.set, startedAt: s.clock.Now()}
	started.before.addState(p.state)
	s.calls.start(ctx, started, func() (outcome, error) {
		asked.now = s.clock.Now()
		s.reconcileRun(ctx, &asked)
		return asked.out, asked.out.err
	})
	return started
}

// finish adds the outcome of an ended call to the pass.
func (s *runStep) finish(ctx context.Context, p *pass, call *call, started bool) {
	// The call has ended, so the reconcile may use the state.
	p.out, p.state, p.temporal = call.out, s.states.of(p.set), s.unavailable(ctx, p.set.Name)
	switch p.out.err = call.err; {
	case started:
		p.result.RequeueAfter = p.out.requeueAfter
	case call.err != nil:
		log.FromContext(ctx).Info("a call to Temporal failed; trying again", "cause", call.err.Error())
		p.out.err, p.result.RequeueAfter = nil, min(time.Second<<min(s.calls.unansweredInARow(p.set.Name), 4), kube.LastRetry)
	default:
		// The SidecarSet or its pods may have changed since the start of the call, so another call may be
		// necessary.
		p.result.RequeueAfter = minReconcileInterval
	}
}

// unavailable returns an error if Temporal is unavailable, for all SidecarSets or only for set.
func (s *runStep) unavailable(ctx context.Context, set string) error {
	if err := s.client.AwaitProbe(ctx); err != nil {
		return err
	}
	if s.calls.unansweredInARow(set) >= reportedUnanswered {
		return s.client.UnansweredError()
	}
	return nil
}

// countsDelay returns the remaining delay of the write of the counts of a new generation. A result of zero
// or less means no delay. The write is delayed until each pod that is not upgradable has a condition, for
// at most statusTimeout (SPEC §8.1).
func (s *runStep) countsDelay(p *pass) time.Duration {
	if p.set.Status.ObservedGeneration == p.set.Generation || p.pause != nil || !p.upgradableConditionPending() {
		return 0
	}
	return p.state.observedAt.Add(statusTimeout).Sub(s.clock.Now())
}
