package activities

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
)

// Lead makes this process the only one that upgrades pods, calls upgrade, and maintains the
// cluster-wide limit meanwhile. Both end with ctx. No pod is written before the cache shows the
// writes of the previous leader.
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

// keepCounting finds slots that become free in SidecarSets without a batch.
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

// countShares counts the SidecarSets without a batch whose cache has changed, unless the last count
// is younger than age. A SidecarSet that cannot be counted keeps its count: its pods cannot be
// upgraded either.
func (a *Activities) countShares(ctx context.Context, age time.Duration) {
	f := a.Limit
	f.counting.Lock()
	defer f.counting.Unlock()
	if age > 0 && f.clock.Since(f.counted) < age {
		return
	}
	f.counted = f.clock.Now()
	for _, one := range f.outdated() {
		late, err := one.late(ctx)
		if err == nil && !one.busy {
			one.used, one.gone, err = a.inFlightOf(ctx, one.name, one.set)
		}
		f.counts(one, late, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report()
	f.wakeOthers("")
}

// inFlightOf counts the pods of a SidecarSet that the cache shows as unavailable because of upgrades.
// The pods of a deleted SidecarSet count by its last state.
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

// shareCount is the share of one SidecarSet while it is counted.
type shareCount struct {
	name    string
	set     *v1alpha1.SidecarSet
	unseen  []*unseenWrites
	changes uint64
	// busy is set if the SidecarSet has a batch, which knows the number of used slots.
	busy, gone bool
	used       int
}

// late counts the unseen writes first: a write that the cache shows meanwhile counts twice rather
// than never.
func (c *shareCount) late(ctx context.Context) (sum int, err error) {
	for _, unseen := range c.unseen {
		n, err := unseen.count(ctx)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// outdated lists the shares to count, by name.
func (f *ClusterLimit) outdated() (list []*shareCount) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	for _, name := range slices.Sorted(maps.Keys(f.sets)) {
		share := f.sets[name]
		busy := share.batch != nil
		if len(share.unseen) == 0 && (busy || !share.outdated) {
			continue
		}
		// A SidecarSet without used slots frees none.
		if share.used+share.late == 0 && now.Sub(share.counted) < recountAge {
			continue
		}
		share.outdated, share.counted = share.outdated && busy, now
		list = append(list, &shareCount{name: name, set: share.set, unseen: slices.Clone(share.unseen), changes: share.changes, busy: busy})
	}
	return list
}

// counts stores a count, unless a batch has newer numbers.
func (f *ClusterLimit) counts(c *shareCount, late int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	share := f.sets[c.name]
	switch {
	case share == nil:
		return
	case err != nil:
		share.outdated = true
		return
	case !c.busy && share.changes == c.changes:
		share.used = c.used
	case !c.busy:
		share.outdated = true
	}
	if len(share.unseen) == len(c.unseen) {
		share.late = late
		share.unseen = slices.DeleteFunc(share.unseen, func(w *unseenWrites) bool { return len(w.pods) == 0 })
	}
	if c.gone && share.used+share.late == 0 && share.batch == nil {
		delete(f.sets, c.name)
	}
}
