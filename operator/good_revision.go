package operator

import (
	"context"
	"time"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/operator/runs"
)

// confirmEnd finds out whether the run has ended, if only that keeps the end of the
// rollout from being recorded. The run of a rollout that waits is checked anyway.
func confirmEnd(ctx context.Context, p *pass, client *runs.Client) {
	check := &p.state.end
	if !p.endToRecord || !p.plan.Ended() || !rolloutStarted(p.set) || p.out.err != nil {
		*check = endCheck{}
		return
	}
	left := check.left(p.set.Generation, p.now)
	if left <= 0 {
		// After an error, the next check comes soon enough.
		if run, err := client.NewestRun(ctx, runs.Reference(p.set)); err == nil {
			p.out.ended = check.ended(p.set, run, p.now)
		} else {
			check.lostSince = time.Time{}
			check.backOff(p.now)
		}
		left = check.left(p.set.Generation, p.now)
	}
	if !p.out.ended && (p.out.requeueAfter == 0 || left < p.out.requeueAfter) {
		p.out.requeueAfter = left
	}
}

// recordGoodRevision records the end of a rollout and, before the first one, the content
// of pods that the operator finds updated. The status that is written names the
// resourceVersion that it replaces: the API server rejects it if the SidecarSet has
// changed since.
func recordGoodRevision(p *pass) {
	if p.invalid != nil {
		return
	}
	status := &p.set.Status
	good := v1alpha1.GoodRevision{Revision: status.LatestRevision, Hash: p.set.Annotations[v1alpha1.HashAnnotation]}
	switch {
	case p.endToRecord && p.out.ended:
		good.ResourceVersion = p.set.ResourceVersion
	case status.Rollout != nil || len(status.GoodRevisions) > 0 || p.plan.Counts.Updated == 0:
		return
	}
	status.GoodRevisions = rollout.WithGood(status.GoodRevisions, good)
}
