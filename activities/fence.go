package activities

import (
	"cmp"
	"context"
	"fmt"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// fence stands before every write: Temporal cannot stop an activity that runs
// already, so the set itself must still want this, and this run.
type fence struct {
	generation int64
	lease      *rolloutLease
	fleet      *FleetBudget
	permission *recent[permission]
}

// permission to upgrade pods of a set, which is nil when the batch must stop.
type permission struct {
	set     *v1alpha1.SidecarSet
	stopped string
}

func newFence(reader *reader, lease *rolloutLease, fleet *FleetBudget, generation int64) *fence {
	f := &fence{generation: generation, lease: lease, fleet: fleet}
	f.permission = newRecent(reader.clock, "SidecarSet "+lease.set.Name+" and its Lease", func(ctx context.Context) (permission, error) {
		return f.ask(ctx, reader)
	})
	return f
}

// check returns the set, or says why its pods must not be upgraded any more.
func (f *fence) check(ctx context.Context) (set *v1alpha1.SidecarSet, stopped string, err error) {
	now, err := f.permission.get(ctx)
	return now.set, now.stopped, cmp.Or(err, f.fleet.check())
}

// ask reads the set and the Lease together, so that neither is older than maxAge
// when a pod is written. The Lease does not matter when the set wants no upgrade.
func (f *fence) ask(ctx context.Context, reader *reader) (permission, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		held bool
		err  error
	}
	lease := make(chan answer, 1)
	go func() {
		held, err := f.lease.held(ctx)
		lease <- answer{held, err}
	}()
	set, err := reader.set(ctx, f.lease.set)
	if err != nil {
		return permission{}, err
	}
	if stopped := f.stopped(set); stopped != "" {
		return permission{stopped: stopped}, nil
	}
	switch now := <-lease; {
	case now.err != nil:
		return permission{}, now.err
	case !now.held:
		return permission{stopped: "another run has taken over"}, nil
	}
	return permission{set: set}, nil
}

// stopped says why the set wants no upgrade to the generation, or nothing.
func (f *fence) stopped(set *v1alpha1.SidecarSet) string {
	switch {
	case set == nil:
		return "the SidecarSet is gone"
	case set.Generation != f.generation:
		return fmt.Sprintf("generation is %d", set.Generation)
	case set.Spec.UpdateStrategy.Paused:
		return "paused"
	case set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return "updates are off"
	}
	return ""
}
