package observer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// fenceTime is how old what a writer knows of the set may be (SPEC §7.1), and
	// what is on the wire meanwhile.
	fenceTime = 2*time.Second + 2*time.Second
	// churnTime is how long ago pods may have come and gone without a cache showing
	// it: while nobody knows that a connection is dead, and until it is listed again.
	churnTime = time.Minute
	// compareInterval is how often the watch of sets is compared with the API server.
	compareInterval = 500 * time.Millisecond
	// strictTime is how much a writer may be late for its write to count as judged
	// strictly.
	strictTime  = 10 * time.Second
	clockFormat = "15:04:05.000"
)

// Violation is something that must not be.
type Violation struct {
	Seen time.Time
	// Rule is bound, partition, fence, hold, twins, app or record.
	Rule, Set, Pod, Text string
	// History is the pod's.
	History []string
}

func (v Violation) String() string {
	text := fmt.Sprintf("%s %s: set %s, pod %s: %s", v.Seen.Format(clockFormat), v.Rule, v.Set, v.Pod, v.Text)
	return strings.Join(append([]string{text}, v.History...), "\n    ")
}

// Observer of all pods and sets of a cluster.
type Observer struct {
	report func(Violation)
	events chan event
	feeds  []*feed
	order  order
	// horizon is until which version all that happened to sets is known.
	horizon  uint64
	compared time.Time

	mu   sync.Mutex
	sets map[string]*history
	pods map[types.UID]*pod
	// late are the times during which what was sent may have been held back.
	late []interval
	// holds are the sets that somebody holds by signal, since when.
	holds map[string]time.Time
	// departures are when pods that were old left a set.
	departures map[string][]time.Time
	violations int
	// upgrades are when pods were written, and strict how many of them are held to what
	// the set wanted at most strictTime before.
	upgrades []time.Time
	strict   int
}

// interval ends never while until is zero.
type interval struct{ from, until time.Time }

// New returns an observer that reports violations as it sees them. The client
// must reach the API server on a way that nothing disturbs.
func New(c client.WithWatch, report func(Violation)) *Observer {
	o := &Observer{
		report: report, events: make(chan event, 4096), sets: map[string]*history{}, pods: map[types.UID]*pod{},
		holds: map[string]time.Time{}, departures: map[string][]time.Time{},
	}
	o.feeds = []*feed{
		newFeed(c, func() client.ObjectList { return &v1alpha1.SidecarSetList{} }, o.events),
		newFeed(c, func() client.ObjectList { return &corev1.PodList{} }, o.events),
	}
	return o
}

// Run observes until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	for _, f := range o.feeds {
		following.Go(func() { f.run(ctx) })
	}
	tick := time.NewTicker(settleTime / 10)
	defer tick.Stop()
	for {
		select {
		case e := <-o.events:
			o.order.add(e)
		case <-tick.C:
			o.process(ctx)
		case <-ctx.Done():
			// Feeds may be about to pass an event.
			go func() {
				for range o.events { //nolint:revive // drained
				}
			}()
			following.Wait()
			close(o.events)
			return
		}
	}
}

// process looks at what can be put in order: while a feed is down, an earlier
// event may come.
func (o *Observer) process(ctx context.Context) {
	for _, f := range o.feeds {
		if f.upFor() < settleTime {
			return
		}
	}
	if now := time.Now(); now.Sub(o.compared) >= compareInterval {
		o.compared = now
		o.horizon = max(o.horizon, o.feeds[0].current(ctx))
	}
	for len(o.events) > 0 {
		o.order.add(<-o.events)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.order.settled(time.Now(), o.horizon) {
		switch object := e.object.(type) {
		case *v1alpha1.SidecarSet:
			o.observeSet(e, object)
		case *corev1.Pod:
			o.observePod(e, object)
		}
	}
}

// Late says that from now on writes of pods may arrive late, until over is called.
func (o *Observer) Late() (over func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := len(o.late)
	o.late = append(o.late, interval{from: time.Now()})
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.late[i].until = time.Now()
	}
}

// Held says that a set is held by signal, and that no batch is in hand any more.
func (o *Observer) Held(set string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds[set] = time.Now()
}

// Resumed ends Held; it is called before the set is resumed.
func (o *Observer) Resumed(set string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.holds, set)
}

// Violations counts what must not have been.
func (o *Observer) Violations() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.violations
}

// Upgrades are the moments at which pods were upgraded.
func (o *Observer) Upgrades() []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.upgrades)
}

// Strict is how many of the upgrades were held to what the set wanted a few seconds
// before, since nothing kept their writers.
func (o *Observer) Strict() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.strict
}

// Pods counts those that are there.
func (o *Observer) Pods() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pods)
}

// known is since when a writer may know a set, of a write that is seen now.
func (o *Observer) known(written time.Time) time.Time {
	from := written.Add(-fenceTime)
	for changed := true; changed; {
		changed = false
		for _, late := range o.late {
			// What was held is sent on when that is over.
			ends := late.until.IsZero() || late.until.Add(fenceTime).After(from)
			if ends && late.from.Before(written) && from.After(late.from.Add(-fenceTime)) {
				from, changed = late.from.Add(-fenceTime), true
			}
		}
	}
	return from
}

func (o *Observer) observeSet(e event, set *v1alpha1.SidecarSet) {
	h := o.sets[set.Name]
	if h == nil {
		h = &history{}
		o.sets[set.Name] = h
	}
	next, err := newVersion(e, set)
	if err != nil {
		o.violated(Violation{Rule: "record", Set: set.Name, Text: err.Error()})
		return
	}
	if len(h.versions) > 0 {
		if last := h.newest(); last.generation == next.generation && last.hash == next.hash && last.gone == next.gone && last.uid == next.uid {
			last.status = next.status
			return
		}
	}
	h.versions = append(h.versions, next)
	if !next.gone {
		h.sizes = append(h.sizes, size{from: e.seen, matched: o.countMatched(next)})
	}
}

func (o *Observer) countMatched(v *version) (n int) {
	for _, p := range o.pods {
		if p.matched(v) {
			n++
		}
	}
	return n
}

// observePod compares a pod with what it was.
func (o *Observer) observePod(e event, object *corev1.Pod) {
	before := o.pods[object.UID]
	now, err := newPod(object, before)
	if err != nil {
		o.violated(Violation{Rule: "record", Pod: object.Namespace + "/" + object.Name, Text: err.Error()})
		return
	}
	now.note(e)
	if e.deleted {
		now.DeletionTimestamp = &object.CreationTimestamp // it counts no more
		delete(o.pods, object.UID)
	} else {
		o.pods[object.UID] = now
	}
	o.countChange(e, before, now)
	if before == nil || !now.live() {
		return
	}
	o.checkApp(e, now)
	for _, name := range slices.Sorted(maps.Keys(now.hashes)) {
		if h := o.sets[name]; h != nil {
			o.checkSet(e, h, before, now)
		}
	}
}

// countChange notes how many pods a set matches when that changes.
func (o *Observer) countChange(e event, before, now *pod) {
	for name, h := range o.sets {
		v := h.newest()
		if v.gone {
			continue
		}
		was, is := before != nil && before.matched(v), now.matched(v)
		if was == is {
			continue
		}
		if was && before.hashes[name] != v.hash {
			o.departures[name] = append(o.departures[name], e.seen)
		}
		h.sizes = append(h.sizes, size{from: e.seen, matched: o.countMatched(v)})
	}
}

func (o *Observer) violated(v Violation) {
	o.violations++
	if v.Seen.IsZero() {
		v.Seen = time.Now()
	}
	o.report(v)
}
