package activities

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

// fence is the write gate: the fence decides whether pods may still be upgraded. Temporal cannot stop a running
// activity, so the activity itself checks the SidecarSet and the Lease. A batch checks the fence when the batch
// decides about a write, and again immediately before the batch sends the request.
type fence struct {
	*Activities
	generation int64
	lease      *rolloutLease
	permission *recent[permission]
	// stage contains the windows in which upgrades may start, and the target of a rollback. Without a
	// RolloutPolicy, stage is nil.
	stage *protocol.Stage
}

// permission is the decision of a fence. If pods may be upgraded, set is the SidecarSet and stopped is empty.
// Otherwise, stopped is the reason.
type permission struct {
	set     *v1alpha1.SidecarSet
	stopped stopped
}

// stopped is an error that contains the reason why a batch ends early. A batch that ends with this error has not
// failed.
type stopped string

func (s stopped) Error() string { return string(s) }

// frozen is an error stopped whose reason is a RolloutFreeze or a closed window.
type frozen struct{ stopped }

func (f frozen) Unwrap() error { return f.stopped }

func (a *Activities) newFence(lease *rolloutLease, generation int64) *fence {
	f := &fence{Activities: a, generation: generation, lease: lease}
	f.permission = newRecent(a.Clock, "SidecarSet "+lease.set.Name+" and its Lease", f.read)
	return f
}

// newResetFence returns the fence of a batch of resets. A pause, a RolloutFreeze or a newer generation does not stop
// resets (SPEC 7.1.2), so the fence has no generation and no stage.
func (a *Activities) newResetFence(set protocol.SetReference, run string) *fence {
	lease := a.lease(set, run)
	lease.resets = true
	return a.newFence(lease, 0)
}

// permitted returns the SidecarSet, or the error stopped. permitted does not check RolloutFreezes and windows.
func (f *fence) permitted(ctx context.Context) (*v1alpha1.SidecarSet, error) {
	now, err := f.permission.get(ctx)
	if err == nil && now.stopped != "" {
		err = now.stopped
	}
	return now.set, err
}

// check returns the SidecarSet, or the error stopped if the pods of the SidecarSet must not be upgraded. With
// the errors frozen and errNotLeading, check also returns the SidecarSet.
func (f *fence) check(ctx context.Context) (*v1alpha1.SidecarSet, error) {
	now, freezes, err := f.current(ctx)
	switch {
	case err != nil:
		return nil, err
	case now.stopped != "":
		return nil, now.stopped
	}
	if message, _, err := stage.Frozen(now.set, f.stage, freezes, f.Clock.Now()); err != nil || message != "" {
		return now.set, cmp.Or[error](err, frozen{stopped(message)})
	}
	return now.set, f.Limit.check()
}

// current returns the permission and the RolloutFreezes, both at most maxAge old. If upgrades are stopped,
// current returns no freezes. current sends both requests concurrently, because the first response would age
// while current waits for the second response.
func (f *fence) current(ctx context.Context) (now permission, freezes []outriggerv1.RolloutFreeze, err error) {
	listed := f.lists().freezes
	for range attempts {
		var listing errgroup.Group
		listing.Go(func() error {
			_, err := listed.get(ctx)
			return err
		})
		if now, err = f.permission.get(ctx); err != nil || now.stopped != "" {
			return now, nil, err
		}
		if err := listing.Wait(); err != nil {
			return now, nil, err
		}
		var readAt, listedAt time.Time
		now, readAt = f.permission.known()
		freezes, listedAt = listed.known()
		if f.Clock.Since(readAt) <= maxAge && f.Clock.Since(listedAt) <= maxAge {
			return now, freezes, nil
		}
	}
	return now, nil, fmt.Errorf("read SidecarSet %s and the RolloutFreezes: the answers are too old to act on", f.lease.set.Name)
}

// read reads the SidecarSet and the Lease concurrently, so that both are at most maxAge old when a pod is
// written. If the SidecarSet permits no upgrade, read does not wait for the Lease.
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
	set, err := f.liveTarget(ctx, f.lease.set, f.stage)
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

// stopped returns the reason why set permits no upgrade to the generation, or an empty reason.
func (f *fence) stopped(set *v1alpha1.SidecarSet) stopped {
	switch {
	case set == nil:
		return "the SidecarSet is gone"
	case f.lease.resets:
		return ""
	case set.Generation != f.generation:
		return stopped(fmt.Sprintf("generation is %d", set.Generation))
	case set.Spec.UpdateStrategy.Paused:
		return "paused"
	case set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return "updates are off"
	}
	return ""
}
