package activities

import (
	"context"
	"fmt"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// fence stands before every write: Temporal cannot stop an activity that runs
// already, so the set itself must still want this, and this run.
type fence struct {
	generation int64
	lease      *rolloutLease
	wanted     *recent[wanted]
}

// wanted is what the API server says of a set and of who may upgrade its pods.
type wanted struct {
	set  *v1alpha1.SidecarSet
	held bool
}

func newFence(reader *reader, lease *rolloutLease, generation int64) *fence {
	// Read as one, so that neither is older than maxAge when a pod is written.
	read := func(ctx context.Context) (now wanted, err error) {
		if now.set, err = reader.set(ctx, lease.set); err != nil || now.set == nil {
			return now, err
		}
		now.held, err = lease.held(ctx)
		return now, err
	}
	return &fence{generation: generation, lease: lease, wanted: newRecent(reader.clock, read)}
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
