package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
)

// Lead waits until the cache shows the writes of the previous leader. Lead then calls upgrade, enforces the
// cluster-wide limit until upgrade returns, and returns the error of upgrade. The caller must be the leader, and
// ctx must end with the leadership.
func (a *Activities) Lead(ctx context.Context, upgrade func(context.Context) error) error {
	if err := a.catchUpAll(ctx); err != nil {
		return err
	}
	var sets v1alpha1.SidecarSetList
	if err := a.Live.List(ctx, &sets); err != nil {
		return fmt.Errorf("list SidecarSets: %w", err)
	}
	a.Limit.begin(ctx, sets.Items)
	defer a.Limit.end()
	a.countShares(ctx, 0)
	counting, stop := context.WithCancel(ctx)
	defer stop()
	go a.keepCounting(counting)
	return upgrade(ctx)
}

// catchUpAll waits until the cache shows the current state of every pod with sidecars.
func (a *Activities) catchUpAll(ctx context.Context) error {
	injected := func(annotations map[string]string) bool { return len(record.InjectedSets(annotations)) > 0 }
	pods, err := a.listLive(ctx, injected)
	if err != nil {
		return err
	}
	for unseen := a.unseenWrites(pods); ; {
		left, err := unseen.count(ctx)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-a.Clock.After(recountInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// keepCounting counts the used slots of SidecarSets without a batch whenever batches wait for slots, so that the
// waiting batches receive the slots that other SidecarSets have released. keepCounting returns when ctx ends.
func (a *Activities) keepCounting(ctx context.Context) {
	ticker := a.Clock.NewTicker(recountInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if a.Limit.waitingBatches() > 0 {
				a.countShares(ctx, 0)
			}
		}
	}
}

// countShares counts the used slots of SidecarSets with unseen writes, and of SidecarSets without a batch whose
// pods have changed in the cache. countShares does nothing if the last count is younger than age. If the count of
// a SidecarSet fails, the previous count stays in effect.
func (a *Activities) countShares(ctx context.Context, age time.Duration) {
	f := a.Limit
	f.counting.Lock()
	defer f.counting.Unlock()
	if age > 0 && f.clock.Since(f.counted) < age {
		return
	}
	f.counted = f.clock.Now()
	for name, before := range f.outdated() {
		a.recount(ctx, name, before)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report()
	f.wakeOthers("")
}

// inFlightOf counts the pods of a SidecarSet that the cache shows as unavailable because of upgrades. If the
// SidecarSet is deleted, gone is true, and inFlightOf uses last, which is the last known state of the SidecarSet.
func (a *Activities) inFlightOf(ctx context.Context, name string, last *v1alpha1.SidecarSet) (n int, gone bool, err error) {
	set := &v1alpha1.SidecarSet{}
	if err := a.Cache.Get(ctx, types.NamespacedName{Name: name}, set); client.IgnoreNotFound(err) != nil {
		return 0, false, fmt.Errorf("read SidecarSet %s: %w", name, err)
	} else if err != nil {
		if set, gone = last, true; set == nil {
			return 0, gone, nil
		}
	}
	n, err = a.inFlight(set)
	if gone && n == 0 {
		a.populations.Forget(name)
	}
	return n, gone, err
}

// outdated returns copies of the shares that must be counted again, by the name of the SidecarSet.
func (f *ClusterLimit) outdated() map[string]limitShare {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, found := f.clock.Now(), map[string]limitShare{}
	for name, share := range f.sets {
		busy := share.batch != nil
		if len(share.unseen) == 0 && (busy || !share.outdated) {
			continue
		}
		// A SidecarSet without used slots cannot release slots, so the SidecarSet is counted less often.
		if share.used+share.late == 0 && now.Sub(share.counted) < recountAge {
			continue
		}
		share.outdated, share.counted = share.outdated && busy, now
		found[name] = *share
	}
	return found
}

// recount counts the slots that a SidecarSet uses, and stores the count unless a batch has sent
// newer numbers. The unseen writes are counted before the pods in the cache. A write that reaches
// the cache between the two counts is therefore counted twice. In the opposite order, the write
// would not be counted at all.
func (a *Activities) recount(ctx context.Context, name string, before limitShare) {
	var late, n, used int
	var gone bool
	var err error
	for _, unseen := range before.unseen {
		if n, err = unseen.count(ctx); err != nil {
			break
		}
		late += n
	}
	if err == nil && before.batch == nil {
		used, gone, err = a.inFlightOf(ctx, name, before.set)
	}
	f := a.Limit
	f.mu.Lock()
	defer f.mu.Unlock()
	share := f.sets[name]
	switch {
	case share == nil:
		return
	case err != nil:
		share.outdated = true
		return
	case before.batch != nil:
	case share.changes == before.changes:
		share.used = used
	default:
		share.outdated = true
	}
	if len(share.unseen) == len(before.unseen) {
		share.late = late
		share.unseen = slices.DeleteFunc(share.unseen, func(w *unseenWrites) bool { return len(w.pods) == 0 })
	}
	if gone && share.used+share.late == 0 && share.batch == nil {
		delete(f.sets, name)
	}
}
