// Package observer watches a cluster from outside. An Observer checks the rules of docs/SPEC.md at
// every write of a pod or SidecarSet. A Watch counts the pods of one sidecar, without reading
// SidecarSets. A Fleet checks the order of the clusters of a fleet. Package observer uses no code of the
// roles. An Observer and a Watch read an annotation only if the pod contains the same information
// in no other field.
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

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// fenceTime is the maximum age of the SidecarSet from which a pod is written (SPEC §7.1), plus the maximum
	// time until a request arrives.
	fenceTime = 2*time.Second + 2*time.Second
	// churnTime is the maximum delay with which a cache shows the creation and deletion of pods. Within
	// churnTime, a client detects a dead connection and lists the pods again.
	churnTime = time.Minute
	// strictTime is the maximum age of the SidecarSet for a write that counts as strict.
	strictTime  = 10 * time.Second
	clockFormat = "15:04:05.000"
)

// Violation is a violation of a rule.
type Violation struct {
	Seen time.Time
	// Rule is bound, partition, fence, pause, twins, app, record or fleet.
	Rule, Set, Pod, Text string
	// History contains the last events of the pod.
	History []string
}

func (v Violation) String() string {
	text := fmt.Sprintf("%s %s: SidecarSet %s, pod %s: %s", v.Seen.Format(clockFormat), v.Rule, v.Set, v.Pod, v.Text)
	return strings.Join(append([]string{text}, v.History...), "\n    ")
}

// judge counts violations and calls report for each violation. mu also guards the struct that embeds a judge.
type judge struct {
	report func(Violation)

	mu         sync.Mutex
	violations int
}

// Observer checks all writes of pods and SidecarSets of a cluster.
type Observer struct {
	judge
	sets map[string]*history
	pods map[types.UID]*pod
	// late contains the intervals in which requests may have been delayed.
	late []interval
	// pauses contains the SidecarSets whose runs are paused, with the times of the calls of Paused.
	pauses map[string]time.Time
	// departures contains, for each SidecarSet, the times at which old pods stopped matching the SidecarSet.
	departures map[string][]time.Time
	totals     Totals
}

// Totals are the counts of an Observer.
type Totals struct {
	// Pods is the number of existing pods.
	Pods       int
	Violations int
	// Upgrades is the number of upgrades of pods. Strict is the number of upgrades that were compared only with
	// versions of the SidecarSet within strictTime, because no fault delayed the writes.
	Upgrades, Strict int
}

// interval is a period of time. While until is zero, the interval has not ended.
type interval struct{ from, until time.Time }

// New returns an Observer that calls report for each violation.
func New(report func(Violation)) *Observer {
	return &Observer{
		judge: judge{report: report}, sets: map[string]*history{}, pods: map[types.UID]*pod{},
		pauses: map[string]time.Time{}, departures: map[string][]time.Time{},
	}
}

// Run observes the writes of etcd until ctx ends. etcd is the URL of etcd. If the watch ends before ctx, Run
// reports a violation.
func (o *Observer) Run(ctx context.Context, etcd string) { o.run(ctx, etcd, o.observe) }

// run calls observe for the writes of etcd until ctx ends.
func (j *judge) run(ctx context.Context, etcd string, observe func(event)) {
	err := watch(ctx, etcd, func(e event) {
		j.mu.Lock()
		defer j.mu.Unlock()
		observe(e)
	})
	if ctx.Err() == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.violated(Violation{Rule: "record", Text: fmt.Sprintf("the watch of %s ended: %v", etcd, err)})
	}
}

func (o *Observer) observe(e event) {
	switch object := e.object.(type) {
	case *v1alpha1.SidecarSet:
		o.observeSet(e, object)
	case *corev1.Pod:
		o.observePod(e, object)
	}
}

// Late permits late writes of pods, until over is called.
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

// Paused makes the Observer report upgrades by the SidecarSet set as violations, until resumed is called. Before
// the call, the caller has paused the run and has waited until no batch is in progress. The caller must call
// resumed before the caller resumes the run.
func (o *Observer) Paused(set string) (resumed func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pauses[set] = time.Now()
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.pauses, set)
	}
}

// Totals returns the counts so far.
func (o *Observer) Totals() Totals {
	o.mu.Lock()
	defer o.mu.Unlock()
	totals := o.totals
	totals.Pods, totals.Violations = len(o.pods), o.violations
	return totals
}

// known returns the earliest time at which a worker may have read the SidecarSet from which a pod was
// written. written is the time of the write.
func (o *Observer) known(written time.Time) time.Time {
	from := written.Add(-fenceTime)
	for changed := true; changed; {
		changed = false
		for _, late := range o.late {
			// A delayed request arrives at most fenceTime after the delay ends.
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

// observePod compares a pod with its previous state.
func (o *Observer) observePod(e event, object *corev1.Pod) {
	before := o.pods[object.UID]
	now, err := newPod(object, before)
	if err != nil {
		o.violated(Violation{Rule: "record", Pod: object.Namespace + "/" + object.Name, Text: err.Error()})
		return
	}
	now.note(e)
	if e.deleted {
		now.DeletionTimestamp = &object.CreationTimestamp // A deleted pod counts as terminating.
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

// countChange records the number of matched pods of a SidecarSet whenever the number changes.
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

func (j *judge) violated(v Violation) {
	j.violations++
	if v.Seen.IsZero() {
		v.Seen = time.Now()
	}
	j.report(v)
}
