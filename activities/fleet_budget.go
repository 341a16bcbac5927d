package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

const (
	// wantTTL is how long a set's wish counts: batches ask about every second.
	wantTTL = 5 * heartbeatInterval
	// recountInterval is how often sets without a batch are counted again while
	// others wait for slots, and recountAge how old their counts may be when a
	// batch asks.
	recountInterval = 100 * time.Millisecond
	recountAge      = time.Second
)

// errNotLeading fails what another worker has to do.
var errNotLeading = errors.New("another worker leads, or none yet: with a bound on the pods of the fleet, one alone upgrades pods")

// FleetBudget bounds how many pods of all sets are unavailable because of
// upgrades (SPEC §7.5), and divides them fairly among the sets that want to
// upgrade more. All batches are in this process, which alone upgrades pods as
// long as it leads: so what the cache shows, and the writes of this process that
// it does not show yet, is all there is. What a set was granted counts until it
// asks again.
type FleetBudget struct {
	limit int
	// maxWaiting is how many batches may wait for slots for longer than a batch lasts.
	maxWaiting int
	// leads reports whether this process may upgrade pods now.
	leads   func() bool
	clock   clock.WithTicker
	changes *Changes
	metrics *Metrics

	mu   sync.Mutex
	term context.Context //nolint:containedctx // what batches end with
	sets map[string]*fleetShare
	// served counts grants.
	served uint64

	// counting is held while sets are counted anew.
	counting sync.Mutex
	counted  time.Time
}

// fleetShare is what a set uses and wants of the budget.
type fleetShare struct {
	set *v1alpha1.SidecarSet
	// batch fills slots; without one, the cache says what the set uses.
	batch *upgradeBatch
	// used pods are in flight, or were granted. want is how many the batch would
	// have in flight, when it was asked last.
	used, want int
	asked      time.Time
	// served is the newest grant: those who wait longest come first.
	served uint64
	// unseen writes of batches that have ended, late of which the cache lacks.
	unseen []*unseenWrites
	late   int
	// outdated is set when the cache has news since it was counted. changes tell
	// counts apart that were begun before and after a batch.
	outdated bool
	counted  time.Time
	changes  uint64
}

// NewFleetBudget allows so many pods, of all sets, to be unavailable because of
// upgrades, while the process leads. maxBatches is how many batches run at once.
func NewFleetBudget(limit, maxBatches int, leads func() bool, clock clock.WithTicker, changes *Changes, metrics *Metrics) *FleetBudget {
	return &FleetBudget{
		limit: limit, maxWaiting: maxBatches / 2, leads: leads, clock: clock, changes: changes, metrics: metrics,
		sets: map[string]*fleetShare{},
	}
}

// check fails when this process may not upgrade pods now.
func (f *FleetBudget) check() error {
	if f != nil && !f.leads() {
		return errNotLeading
	}
	return nil
}

// within returns a context that ends when this process leads no more.
func (f *FleetBudget) within(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if f == nil {
		return ctx, func() {}, nil
	}
	f.mu.Lock()
	term := f.term
	f.mu.Unlock()
	if err := f.check(); err != nil || term == nil || term.Err() != nil {
		return ctx, func() {}, errNotLeading
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(term, func() { end(errNotLeading) })
	return ctx, func() {
		stop()
		end(nil)
	}, nil
}

// mark notes that the cache has news about sets.
func (f *FleetBudget) mark(sets ...string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.term == nil {
		return
	}
	for _, set := range sets {
		f.share(set).outdated = true
	}
}

func (f *FleetBudget) share(set string) *fleetShare {
	if f.sets[set] == nil {
		f.sets[set] = &fleetShare{}
	}
	return f.sets[set]
}

// ask tells that used pods of the batch's set are in flight, those that the cache
// does not show so included, and says how many of more may be added at once.
// What is not granted is waited for: the set is woken.
func (f *FleetBudget) ask(b *upgradeBatch, set *v1alpha1.SidecarSet, used, more int) (granted int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	share := f.share(set.Name)
	if share.batch != nil && share.batch != b {
		// That one's writes are not among those used.
		return 0
	}
	share.set, share.batch = set, b
	share.used, share.want, share.asked = used, used+more, f.clock.Now()
	share.changes++
	if more > 0 {
		granted = max(0, f.allowed()[set.Name]-used-share.late)
		granted = min(granted, more, max(0, f.limit-f.inUse()))
	}
	if granted > 0 {
		f.served++
		share.served = f.served
		share.used += granted
	}
	f.report()
	f.wakeOthers(set.Name)
	return granted
}

// leave ends a batch, which writes no more.
func (f *FleetBudget) leave(b *upgradeBatch, set string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	share := f.sets[set]
	if share == nil || share.batch != b {
		return
	}
	b.own.add(b.outcome.newWrites())
	own := len(b.own.pods)
	share.used, share.late = max(share.used-own, 0), share.late+own+len(b.before.pods)
	share.batch, share.want, share.outdated = nil, 0, true
	share.changes++
	share.unseen = append(share.unseen, b.before, b.own)
}

// crowded reports whether so many batches wait for slots that others may not get
// to run.
func (f *FleetBudget) crowded() bool { return f.waitingBatches() > f.maxWaiting }

func (f *FleetBudget) waitingBatches() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, share := range f.sets {
		if share.batch != nil && share.want > share.used {
			n++
		}
	}
	return n
}

func (f *FleetBudget) inUse() (sum int) {
	for _, share := range f.sets {
		sum += share.used + share.late
	}
	return sum
}

// allowed is how many pods each set may have in flight now.
func (f *FleetBudget) allowed() map[string]int {
	var names []string
	for name, share := range f.sets {
		if share.used+share.late > 0 || share.want > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.sets[a].served, f.sets[b].served), cmp.Compare(a, b))
	})
	now := f.clock.Now()
	claims := make([]rollout.Claim, 0, len(names))
	for _, name := range names {
		share := f.sets[name]
		claim := rollout.Claim{Used: share.used + share.late}
		if now.Sub(share.asked) < wantTTL {
			claim.Want = share.want + share.late
		}
		claims = append(claims, claim)
	}
	allowed := make(map[string]int, len(names))
	for i, share := range rollout.Shares(f.limit, claims) {
		allowed[names[i]] = share
	}
	return allowed
}

// wakeOthers has batches look that would be granted something now.
func (f *FleetBudget) wakeOthers(but string) {
	if f.inUse() >= f.limit {
		return
	}
	for name, allowed := range f.allowed() {
		if share := f.sets[name]; name != but && share.batch != nil && allowed > share.used+share.late {
			f.changes.wake(name)
		}
	}
}

func (f *FleetBudget) report() {
	if f.term == nil {
		return
	}
	f.metrics.fleetUnavailable.WithLabelValues().Set(float64(f.inUse()))
	f.metrics.fleetLimit.WithLabelValues().Set(float64(f.limit))
}

// waiting describes what a batch waits for.
func (f *FleetBudget) waiting() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("waiting for the fleet: %d of %d pods are unavailable", f.inUse(), f.limit)
}

// begin starts a term, with the sets that there are.
func (f *FleetBudget) begin(term context.Context, sets []v1alpha1.SidecarSet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.term, f.sets = term, map[string]*fleetShare{}
	for i := range sets {
		f.sets[sets[i].Name] = &fleetShare{set: &sets[i], outdated: true}
	}
}

func (f *FleetBudget) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.term = nil
	f.metrics.fleetUnavailable.Reset()
	f.metrics.fleetLimit.Reset()
}
