package operator

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// enqueueLimiter delays events about pods and revisions, so that they have a set
// reconciled at most once per minReconcileInterval.
type enqueueLimiter struct {
	clock        clock.PassiveClock
	mu           sync.Mutex
	reconciledAt map[string]time.Time
}

func newEnqueueLimiter(clock clock.PassiveClock) *enqueueLimiter {
	return &enqueueLimiter{clock: clock, reconciledAt: map[string]time.Time{}}
}

// recordReconcile records when a set was reconciled.
func (l *enqueueLimiter) recordReconcile(set string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reconciledAt[set] = at
}

func (l *enqueueLimiter) forget(set string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reconciledAt, set)
}

// enqueue adds a set to the queue: at once if minReconcileInterval has passed since its
// last reconcile, or else when it has. The queue keeps the earliest time of an item.
func (l *enqueueLimiter) enqueue(q queue, set string) {
	l.mu.Lock()
	left := l.reconciledAt[set].Add(minReconcileInterval).Sub(l.clock.Now())
	l.mu.Unlock()
	if left <= 0 {
		q.Add(request(set))
		return
	}
	q.AddAfter(request(set), left)
}

// nameSet is a set of names that is safe for concurrent use.
type nameSet struct {
	mu  sync.Mutex
	all map[string]bool
}

func (n *nameSet) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]bool{}
	}
	n.all[name] = true
}

// take removes a name, and reports whether it was there.
func (n *nameSet) take(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, in := n.all[name]
	delete(n.all, name)
	return in
}
