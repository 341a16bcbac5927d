package operator

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// How often one looks at the run of a set that is not finished.
const (
	// soonest is how often at most, and while something moves.
	soonest = time.Second
	// slowest is how often while pods are offered to the run and nothing moves.
	slowest = 8 * time.Second
	// whileSuspect is how often while something may be wrong, or is.
	whileSuspect = 4 * time.Second
	// whileHeld is how often while somebody may resume the run, or old twins
	// may have become free to empty.
	whileHeld = 5 * time.Second
	// rarely is how often while nothing is offered.
	rarely = 12 * time.Second
	// A run of another generation than the set's is told so this often, at
	// first, and then less and less often.
	firstRepair = 5 * time.Second
	lastRepair  = 5 * time.Minute
	// A run that sleeps is woken at once when the cluster offers work, and then
	// less and less often while nothing comes of it: writes may be refused.
	firstWake = time.Second
	lastWake  = 10 * time.Minute
)

// tracks is what status does not hold of the sets' runs. Losing it with the
// process is harmless: a second start changes nothing.
type tracks struct {
	mu   sync.Mutex
	sets map[string]*track
}

func newTracks() *tracks { return &tracks{sets: map[string]*track{}} }

// of returns the track of a set, which only the set's own reconcile uses.
func (t *tracks) of(set *v1alpha1.SidecarSet) *track {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.sets[set.Name]
	if one == nil || one.uid != set.UID {
		one = &track{uid: set.UID, fault: faultOf(set)}
		t.sets[set.Name] = one
	}
	return one
}

func (t *tracks) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sets, name)
}

// track is what one remembers of one set's run.
type track struct {
	uid types.UID
	// generation is the newest whose rollout this process started.
	generation int64
	// seen is the generation seen last, for the first time at seenAt.
	seen   int64
	seenAt time.Time
	// finished is the generation of which nothing was left to do.
	finished int64
	// looked is when the run was looked at last, counts and offered what there
	// was to do then, and interval how long not to look again unless that changes.
	looked   time.Time
	interval time.Duration
	counts   protocol.Counts
	offered  bool
	// woken is when the run was woken last, with which counts, and wake how long
	// to leave it at that unless they change.
	woken       time.Time
	wokenCounts protocol.Counts
	wake        time.Duration
	// ended is when the run was first seen to have ended though pods wait.
	ended time.Time
	// repaired is when the run was told its generation again, and repair how
	// long to leave it at that.
	repaired time.Time
	repair   time.Duration
	// fault is what is wrong with those who do the work, told at faultAt; suspect
	// while that may be about to change.
	fault     fault
	faultAt   time.Time
	suspect   bool
	sightings sightings
}

// meet notes which generation a set has.
func (t *track) meet(generation int64, now time.Time) {
	if t.seen != generation {
		t.seen, t.seenAt = generation, now
	}
}

// recordStart records that a rollout was started or signalled.
func (t *track) recordStart(generation int64, now time.Time) {
	t.generation, t.looked, t.interval = generation, now, soonest
	t.ended, t.repaired, t.repair = time.Time{}, now, firstRepair
}

// recordFinished records that nothing is left to do for a generation.
func (t *track) recordFinished(generation int64) {
	t.finished, t.ended, t.looked = generation, time.Time{}, time.Time{}
	t.fault, t.suspect, t.sightings = fault{}, false, sightings{}
}

// due is how long the next look can wait.
func (t *track) due(o *observation, now time.Time) time.Duration {
	interval := rarely
	switch {
	case t.moved(o) && (o.offers() || o.hold != nil):
		interval = soonest
	case o.hold != nil:
		interval = whileHeld
	case len(o.plan.Pods) > 0:
		interval = max(t.interval, soonest)
	case o.plan.Counts.Migrating > 0:
		interval = whileHeld
	}
	if t.suspect {
		interval = min(interval, whileSuspect)
	}
	return t.looked.Add(interval).Sub(now)
}

// moved reports whether there is something else to do than at the last look.
func (t *track) moved(o *observation) bool {
	return t.looked.IsZero() || o.plan.Counts != t.counts || o.offers() && !t.offered
}

// look notes a look at the run.
func (t *track) look(o *observation, now time.Time) {
	if t.moved(o) {
		t.interval = soonest
	} else {
		t.interval = min(2*t.interval, slowest)
	}
	t.counts, t.offered, t.looked = o.plan.Counts, o.offers(), now
}

// stuck reports whether nothing has moved for a while though pods are offered.
func (t *track) stuck() bool { return t.offered && t.interval > soonest }

// mayWake reports whether to wake a run that sleeps.
func (t *track) mayWake(o *observation, now time.Time) bool {
	switch {
	case o.plan.Counts != t.wokenCounts:
		t.wake = firstWake
	case now.Sub(t.woken) < t.wake:
		return false
	default:
		t.wake = min(2*t.wake, lastWake)
	}
	t.woken, t.wokenCounts = now, o.plan.Counts
	return true
}

// mayRepair reports whether to tell a run its generation again.
func (t *track) mayRepair(now time.Time) bool {
	if now.Sub(t.repaired) < t.repair {
		return false
	}
	t.repaired, t.repair = now, min(max(2*t.repair, firstRepair), lastRepair)
	return true
}

// diagnosed takes in what is wrong with the workers. The words about one failure
// stay for a while, since its cause may be told otherwise at each attempt.
func (t *track) diagnosed(found fault, sure bool, now time.Time) {
	t.suspect = !sure || found != fault{}
	switch {
	case !sure, found == t.fault:
	case found.sameFailure(t.fault) && now.Sub(t.faultAt) < retold:
	default:
		t.fault, t.faultAt = found, now
	}
}
