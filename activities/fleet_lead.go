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

// Lead prepares this process to be the one that upgrades pods, calls upgrade,
// and keeps the fleet's budget while that runs. Both end with ctx. Nothing is
// written before the cache shows what those who led before have written.
func (a *Activities) Lead(ctx context.Context, upgrade func(context.Context) error) error {
	if err := a.catchUpWithFleet(ctx); err != nil {
		return err
	}
	var sets v1alpha1.SidecarSetList
	if err := a.Live.List(ctx, &sets); err != nil {
		return fmt.Errorf("list SidecarSets: %w", err)
	}
	a.Fleet.begin(ctx, sets.Items)
	defer a.Fleet.end()
	a.countFleet(ctx, 0)
	counting, stop := context.WithCancel(ctx)
	defer stop()
	go a.keepCounting(counting)
	return upgrade(ctx)
}

// catchUpWithFleet waits until the cache shows every pod that has sidecars as the
// API server has it now.
func (a *Activities) catchUpWithFleet(ctx context.Context) error {
	reader := a.reader()
	injected := func(annotations map[string]string) bool { return len(record.InjectedSets(annotations)) > 0 }
	pods, err := reader.listLive(ctx, injected)
	if err != nil {
		return err
	}
	for unseen := reader.unseenWrites(pods); ; {
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

// keepCounting notices slots that become free in sets that have no batch.
func (a *Activities) keepCounting(ctx context.Context) {
	ticker := a.Clock.NewTicker(recountInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if a.Fleet.waitingBatches() > 0 {
				a.countFleet(ctx, 0)
			}
		}
	}
}

// countFleet counts the sets anew about which the cache has news and that no
// batch counts, unless that was done less than age ago. A set that cannot be
// counted keeps its count: nobody could upgrade its pods either.
func (a *Activities) countFleet(ctx context.Context, age time.Duration) {
	f := a.Fleet
	f.counting.Lock()
	defer f.counting.Unlock()
	if age > 0 && f.clock.Since(f.counted) < age {
		return
	}
	f.counted = f.clock.Now()
	for _, one := range f.outdated() {
		late, err := one.late(ctx)
		if err == nil && !one.busy {
			one.used, one.gone, err = a.inFlight(ctx, one.name, one.set)
		}
		f.counts(one, late, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report()
	f.wakeOthers("")
}

// inFlight counts the pods of a set that the cache shows as unavailable because of
// upgrades. Those of a set that is gone count as it was last.
func (a *Activities) inFlight(ctx context.Context, name string, last *v1alpha1.SidecarSet) (n int, gone bool, err error) {
	set := &v1alpha1.SidecarSet{}
	if err := a.Cache.Get(ctx, types.NamespacedName{Name: name}, set); client.IgnoreNotFound(err) != nil {
		return 0, false, fmt.Errorf("read SidecarSet %s: %w", name, err)
	} else if err != nil {
		if set, gone = last, true; set == nil {
			return 0, gone, nil
		}
	}
	n, err = a.reader().moving(set)
	if gone && n == 0 {
		a.populations.Forget(name)
	}
	return n, gone, err
}

// fleetCount is one set's share while it is counted.
type fleetCount struct {
	name    string
	set     *v1alpha1.SidecarSet
	unseen  []*unseenWrites
	changes uint64
	// busy sets have a batch, which knows what they use.
	busy, gone bool
	used       int
}

// late counts first, like a batch: what arrives meanwhile counts twice rather
// than never.
func (c *fleetCount) late(ctx context.Context) (sum int, err error) {
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
func (f *FleetBudget) outdated() (list []*fleetCount) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	for _, name := range slices.Sorted(maps.Keys(f.sets)) {
		share := f.sets[name]
		busy := share.batch != nil
		if len(share.unseen) == 0 && (busy || !share.outdated) {
			continue
		}
		// Those that use nothing have nothing to give.
		if share.used+share.late == 0 && now.Sub(share.counted) < recountAge {
			continue
		}
		share.outdated, share.counted = share.outdated && busy, now
		list = append(list, &fleetCount{name: name, set: share.set, unseen: slices.Clone(share.unseen), changes: share.changes, busy: busy})
	}
	return list
}

// counts takes what was counted, unless a batch knows better by now.
func (f *FleetBudget) counts(c *fleetCount, late int, err error) {
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
