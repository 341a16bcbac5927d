package activities

import (
	"context"
	"fmt"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// fence decides whether pods may still be upgraded. Temporal cannot stop a running activity, so
// the fence reads the SidecarSet and the Lease. A batch checks the fence when it decides about a
// write, and again when the write leaves the process.
type fence struct {
	*Activities
	generation int64
	lease      *rolloutLease
	permission *recent[permission]
}

// permission is true if pods may be upgraded. If not, stopped is the reason.
type permission struct {
	set     *v1alpha1.SidecarSet
	stopped stopped
}

// stopped is the reason to end a batch early, as an error. A batch that ends with this error has
// not failed.
type stopped string

func (s stopped) Error() string { return string(s) }

func (a *Activities) newFence(lease *rolloutLease, generation int64) *fence {
	f := &fence{Activities: a, generation: generation, lease: lease}
	f.permission = newRecent(a.Clock, "SidecarSet "+lease.set.Name+" and its Lease", f.read)
	return f
}

// check returns the SidecarSet, or the error stopped if its pods must not be upgraded.
func (f *fence) check(ctx context.Context) (*v1alpha1.SidecarSet, error) {
	now, err := f.permission.get(ctx)
	switch {
	case err != nil:
		return nil, err
	case now.stopped != "":
		return nil, now.stopped
	}
	return now.set, f.Limit.check()
}

// read reads the SidecarSet and the Lease at the same time, so that neither is older than maxAge
// when a pod is written. If the SidecarSet allows no upgrade, read does not wait for the Lease.
func (f *fence) read(ctx context.Context) (permission, error) {
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
	set, err := f.liveSet(ctx, f.lease.set)
	if err != nil {
		return permission{}, err
	}
	if reason := f.stopped(set); reason != "" {
		return permission{stopped: reason}, nil
	}
	switch now := <-lease; {
	case now.err != nil:
		return permission{}, now.err
	case !now.held:
		return permission{stopped: "another run has taken over"}, nil
	}
	return permission{set: set}, nil
}

// stopped returns the reason if the SidecarSet allows no upgrade to the generation.
func (f *fence) stopped(set *v1alpha1.SidecarSet) stopped {
	switch {
	case set == nil:
		return "the SidecarSet is gone"
	case set.Generation != f.generation:
		return stopped(fmt.Sprintf("generation is %d", set.Generation))
	case set.Spec.UpdateStrategy.Paused:
		return "paused"
	case set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return "updates are off"
	}
	return ""
}
