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
	// wantTTL is the time after which a request for slots expires. A batch requests slots about
	// once a second.
	wantTTL = 5 * heartbeatInterval
	// recountInterval is the time between two counts of the SidecarSets without a batch while other
	// SidecarSets wait for slots. recountAge is the age of a count after which a request of a batch triggers
	// a new count.
	recountInterval = 100 * time.Millisecond
	recountAge      = time.Second
)

// errNotLeading is the error of activities on a worker that is not the leader.
var errNotLeading = errors.New("another worker leads, or no worker leads yet: with a cluster-wide limit, only one worker upgrades pods")

// ClusterLimit limits the number of pods of all SidecarSets that upgrades make unavailable (SPEC §7.5), and
// divides the slots fairly. While this process leads, no other process upgrades pods, so all batches run in
// this process. The pods in the cache and the unseen writes of these batches therefore include every upgrade.
// The slots that request returns to a batch count as used until the next request of the batch.
type ClusterLimit struct {
	limit int
	// maxWaiting is the number of batches that may wait for slots for longer than refillTime.
	maxWaiting int
	// leads reports whether this process may upgrade pods now.
	leads   func() bool
	clock   clock.WithTicker
	changes *Changes
	metrics *Metrics

	mu   sync.Mutex
	term context.Context //nolint:containedctx // the end of term ends all batches
	sets map[string]*limitShare
	// served is the number of requests that have received slots.
	served uint64

	// counting is locked while SidecarSets are counted.
	counting sync.Mutex
	counted  time.Time
}

// limitShare is the use of the limit by one SidecarSet.
type limitShare struct {
	set *v1alpha1.SidecarSet
	// batch is the running batch of the SidecarSet, or nil. Without a batch, the number of used slots is
	// counted from the cache.
	batch *upgradeBatch
	// used is the number of slots of the batch, with and without a pod in progress. want is the number of
	// slots that the batch could use, as of the last request of the batch.
	used, want  int
	requestedAt time.Time
	// served is the value of ClusterLimit.served after the last request of this SidecarSet that received slots.
	// The SidecarSet with the lowest value receives slots first.
	served uint64
	// unseen contains the writes of batches that have ended. late is the number of these writes
	// that the cache does not show yet.
	unseen []*unseenWrites
	late   int
	// outdated is set if the cache has changed since the last count. changes increases with each
	// request of a batch, so that a count from before the request is discarded.
	outdated bool
	counted  time.Time
	changes  uint64
}

// NewClusterLimit returns a ClusterLimit. limit is the number of pods of all SidecarSets that may
// be unavailable, and maxBatches the number of batches that may run at once.
func NewClusterLimit(limit, maxBatches int, leads func() bool, clock clock.WithTicker, changes *Changes, metrics *Metrics) *ClusterLimit {
	return &ClusterLimit{
		limit: limit, maxWaiting: maxBatches / 2, leads: leads, clock: clock, changes: changes, metrics: metrics,
		sets: map[string]*limitShare{},
	}
}

// check returns errNotLeading if this process must not upgrade pods now.
func (f *ClusterLimit) check() error {
	if f != nil && !f.leads() {
		return errNotLeading
	}
	return nil
}

// within returns a context that ends when this process stops leading, and a function that releases the
// context. If this process does not lead, within returns errNotLeading.
func (f *ClusterLimit) within(ctx context.Context) (context.Context, context.CancelFunc, error) {
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

// mark records that the count of each SidecarSet in sets is outdated, because pods of the SidecarSet have
// changed in the cache. mark ignores names without a share, because the annotation of a pod may contain any
// name.
func (f *ClusterLimit) mark(sets ...string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, set := range sets {
		if share := f.sets[set]; share != nil {
			share.outdated = true
		}
	}
}

// add adds an existing SidecarSet, and records that the count of the SidecarSet is outdated.
func (f *ClusterLimit) add(set string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.term != nil {
		f.share(set).outdated = true
	}
}

func (f *ClusterLimit) share(set string) *limitShare {
	if f.sets[set] == nil {
		f.sets[set] = &limitShare{}
	}
	return f.sets[set]
}

// request records that used pods of the SidecarSet are in progress. The number used includes writes of b that the
// cache does not show. The parameter more is the number of additional slots that the batch could use. request
// returns the number of additional slots that the batch may use. The batch is woken when further slots are
// released.
func (f *ClusterLimit) request(b *upgradeBatch, set *v1alpha1.SidecarSet, used, more int) (slots int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	share := f.share(set.Name)
	if share.batch != nil && share.batch != b {
		// Another batch of the SidecarSet has not left yet, and used does not include the writes of that batch.
		return 0
	}
	share.set, share.batch = set, b
	share.used, share.want, share.requestedAt = used, used+more, f.clock.Now()
	share.changes++
	if more > 0 {
		slots = max(0, f.allowed()[set.Name]-used-share.late)
		slots = min(slots, more, max(0, f.limit-f.inUse()))
	}
	if slots > 0 {
		f.served++
		share.served = f.served
		share.used += slots
	}
	f.report()
	f.wakeOthers(set.Name)
	return slots
}

// leave removes a batch. The batch must have no writes in flight. Writes that the cache does not show yet still
// occupy slots.
func (f *ClusterLimit) leave(b *upgradeBatch, set string) {
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

// crowded reports whether the number of waiting batches exceeds maxWaiting. More waiting batches could occupy all
// task slots of the worker, and other batches could not start.
func (f *ClusterLimit) crowded() bool { return f.waitingBatches() > f.maxWaiting }

func (f *ClusterLimit) waitingBatches() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, share := range f.sets {
		if share.batch != nil && share.want > share.used {
			n++
		}
	}
	return n
}

func (f *ClusterLimit) inUse() (sum int) {
	for _, share := range f.sets {
		sum += share.used + share.late
	}
	return sum
}

// allowed returns the number of pods that each SidecarSet may have in progress now.
func (f *ClusterLimit) allowed() map[string]int {
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
		if now.Sub(share.requestedAt) < wantTTL {
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

// wakeOthers wakes the batches that could receive slots now, except the batch of the SidecarSet but.
func (f *ClusterLimit) wakeOthers(but string) {
	if f.inUse() >= f.limit {
		return
	}
	for name, allowed := range f.allowed() {
		if share := f.sets[name]; name != but && share.batch != nil && allowed > share.used+share.late {
			f.changes.wake(name)
		}
	}
}

func (f *ClusterLimit) report() {
	if f.term == nil {
		return
	}
	f.metrics.limitUnavailable.WithLabelValues().Set(float64(f.inUse()))
	f.metrics.limitSize.WithLabelValues().Set(float64(f.limit))
}

// waiting returns the text for the heartbeat details of a waiting batch.
func (f *ClusterLimit) waiting() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("waiting for the cluster-wide limit: %d pods are unavailable, and the limit is %d", f.inUse(), f.limit)
}

// begin starts to apply the limit to the existing SidecarSets when this process becomes the leader. term ends
// with the leadership.
func (f *ClusterLimit) begin(term context.Context, sets []v1alpha1.SidecarSet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.term, f.sets = term, map[string]*limitShare{}
	for i := range sets {
		f.sets[sets[i].Name] = &limitShare{set: &sets[i], outdated: true}
	}
}

func (f *ClusterLimit) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.term = nil
	f.metrics.limitUnavailable.Reset()
	f.metrics.limitSize.Reset()
}
