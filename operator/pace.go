package operator

import (
	"sync"
	"time"
)

// pace keeps events about pods from having a set looked at more than once a
// second.
type pace struct {
	now    func() time.Time
	mu     sync.Mutex
	looked map[string]time.Time
}

func newPace(now func() time.Time) *pace { return &pace{now: now, looked: map[string]time.Time{}} }

// look notes that a set is looked at.
func (p *pace) look(set string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked[set] = at
}

func (p *pace) forget(set string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.looked, set)
}

// enqueue has a set looked at: now if that was not done for a while, or else once
// that while is over. The queue keeps the earliest time of an item.
func (p *pace) enqueue(q queue, set string) {
	p.mu.Lock()
	left := p.looked[set].Add(coalescing).Sub(p.now())
	p.mu.Unlock()
	if left <= 0 {
		q.Add(request(set))
		return
	}
	q.AddAfter(request(set), left)
}

// names is a set of names that one side adds and the other takes.
type names struct {
	mu  sync.Mutex
	all map[string]bool
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]bool{}
	}
	n.all[name] = true
}

// take reports whether a name is in it, and removes it.
func (n *names) take(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, in := n.all[name]
	delete(n.all, name)
	return in
}
