package activities

import (
	"context"
	"fmt"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// fence stands before every write: Temporal cannot stop an activity that runs
// already, so the set itself must still want this, and this run.
type fence struct {
	generation int64
	claim      claim
	wanted     *recent[wanted]
}

// wanted is what the API server says of a set and of who may upgrade its pods.
type wanted struct {
	set  *v1alpha1.SidecarSet
	held bool
}

func (a *Activities) newFence(set protocol.SetReference, generation int64, run string) *fence {
	f := &fence{generation: generation, claim: claim{Activities: a, set: set, run: run}}
	// Read as one, so that neither is older than maxAge when a pod is written.
	f.wanted = newRecent(a.Clock, func(ctx context.Context) (now wanted, err error) {
		if now.set, err = a.readSet(ctx, set); err != nil || now.set == nil {
			return now, err
		}
		now.held, err = f.claim.held(ctx)
		return now, err
	})
	return f
}

// check returns the set, or says why its pods must not be upgraded any more.
func (f *fence) check(ctx context.Context) (set *v1alpha1.SidecarSet, stopped string, err error) {
	now, err := f.wanted.get(ctx)
	set = now.set
	switch {
	case err != nil:
		return nil, "", err
	case set == nil:
		return nil, "the SidecarSet is gone", nil
	case set.Generation != f.generation:
		return nil, fmt.Sprintf("generation is %d", set.Generation), nil
	case set.Spec.UpdateStrategy.Paused:
		return nil, "paused", nil
	case set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return nil, "updates are off", nil
	case !now.held:
		return nil, "another run has taken over", nil
	}
	return set, "", nil
}
