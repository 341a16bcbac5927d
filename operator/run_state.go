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

// runStates holds what status does not of the sets' runs. Losing it with the
// process is harmless: a second start changes nothing.
type runStates struct {
	mu   sync.Mutex
	sets map[string]*runState
}

func newRunStates() *runStates { return &runStates{sets: map[string]*runState{}} }

// of returns the state of a set's run, which only the set's own reconcile uses.
func (s *runStates) of(set *v1alpha1.SidecarSet) *runState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.sets[set.Name]
	if state == nil || state.uid != set.UID {
		state = &runState{uid: set.UID, fault: faultOf(set)}
		s.sets[set.Name] = state
	}
	return state
}

func (s *runStates) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sets, name)
}

// runState is what this process remembers of one set's run.
type runState struct {
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
func (s *runState) meet(generation int64, now time.Time) {
	if s.seen != generation {
		s.seen, s.seenAt = generation, now
	}
}

// recordStart records that a rollout was started or signalled.
func (s *runState) recordStart(generation int64, now time.Time) {
	s.generation, s.looked, s.interval = generation, now, soonest
	s.ended, s.repaired, s.repair = time.Time{}, now, firstRepair
}

// recordFinished records that nothing is left to do for a generation.
func (s *runState) recordFinished(generation int64) {
	s.finished, s.ended, s.looked = generation, time.Time{}, time.Time{}
	s.fault, s.suspect, s.sightings = fault{}, false, sightings{}
}

// due is how long the next look can wait.
func (s *runState) due(o *observation, now time.Time) time.Duration {
	interval := rarely
	switch {
	case s.moved(o) && (o.offers() || o.hold != nil):
		interval = soonest
	case o.hold != nil:
		interval = whileHeld
	case len(o.plan.Pods) > 0:
		interval = max(s.interval, soonest)
	case o.plan.Counts.Migrating > 0:
		interval = whileHeld
	}
	if s.suspect {
		interval = min(interval, whileSuspect)
	}
	return s.looked.Add(interval).Sub(now)
}

// moved reports whether there is something else to do than at the last look.
func (s *runState) moved(o *observation) bool {
	return s.looked.IsZero() || o.plan.Counts != s.counts || o.offers() && !s.offered
}

// look notes a look at the run.
func (s *runState) look(o *observation, now time.Time) {
	if s.moved(o) {
		s.interval = soonest
	} else {
		s.interval = min(2*s.interval, slowest)
	}
	s.counts, s.offered, s.looked = o.plan.Counts, o.offers(), now
}

// stuck reports whether nothing has moved for a while though pods are offered.
func (s *runState) stuck() bool { return s.offered && s.interval > soonest }

// mayWake reports whether to wake a run that sleeps.
func (s *runState) mayWake(o *observation, now time.Time) bool {
	switch {
	case o.plan.Counts != s.wokenCounts:
		s.wake = firstWake
	case now.Sub(s.woken) < s.wake:
		return false
	default:
		s.wake = min(2*s.wake, lastWake)
	}
	s.woken, s.wokenCounts = now, o.plan.Counts
	return true
}

// mayRepair reports whether to tell a run its generation again.
func (s *runState) mayRepair(now time.Time) bool {
	if now.Sub(s.repaired) < s.repair {
		return false
	}
	s.repaired, s.repair = now, min(max(2*s.repair, firstRepair), lastRepair)
	return true
}

// diagnosed takes in what is wrong with the workers. The words about one failure
// stay for a while, since its cause may be told otherwise at each attempt.
func (s *runState) diagnosed(found fault, sure bool, now time.Time) {
	s.suspect = !sure || found != fault{}
	switch {
	case !sure, found == s.fault:
	case found.sameFailure(s.fault) && now.Sub(s.faultAt) < retold:
	default:
		s.fault, s.faultAt = found, now
	}
}
