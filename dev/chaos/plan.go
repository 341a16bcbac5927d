package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outrigger/outrigger/dev/cluster"
)

// Kind is the kind of a fault.
type Kind string

// The faults affect processes, connections, the API server, Temporal, pods or SidecarSets.
const (
	Kill         Kind = "kill"          // a process receives SIGKILL, and is started again
	Freeze       Kind = "freeze"        // a process receives SIGSTOP, then SIGCONT
	Cut          Kind = "cut"           // open and new connections are reset
	Hold         Kind = "hold"          // bytes are delayed until the end of the fault
	Lose         Kind = "lose"          // bytes are lost, and the connections are reset at the end of the fault
	Delay        Kind = "delay"         // each byte arrives late
	TooMany      Kind = "too-many"      // most requests to the API server are answered with 429
	Exhausted    Kind = "exhausted"     // Temporal accepts only a few requests per second
	Conflicts    Kind = "conflicts"     // another client writes the pods continuously
	DeletePods   Kind = "delete-pods"   // pods are deleted, and their owners recreate the pods
	Relabel      Kind = "relabel"       // a SidecarSet stops selecting pods, then selects them again
	Scale        Kind = "scale"         // the number of replicas of a Deployment changes
	Crash        Kind = "crash"         // the apps of pods crash repeatedly
	Reject       Kind = "reject"        // a policy rejects the upgrades of pods
	Image        Kind = "image"         // the image of a SidecarSet changes
	Alias        Kind = "alias"         // the image of a SidecarSet changes to another name of the same image
	Bad          Kind = "bad-image"     // the image of a SidecarSet cannot be pulled, until a good image follows
	Window       Kind = "window"        // the maxUnavailable of a SidecarSet changes
	Partition    Kind = "partition"     // the partition of a SidecarSet changes
	Order        Kind = "order"         // the priority or scatter strategy of a SidecarSet changes
	Env          Kind = "env"           // a SidecarSet changes in a field that requires new pods
	Pause        Kind = "pause"         // spec.updateStrategy.paused is set, then unset
	PauseRun     Kind = "pause-run"     // the run is paused, then resumed
	Remake       Kind = "remake"        // a SidecarSet is deleted, then recreated
	CutEverybody Kind = "cut-everybody" // all connections to the API server are reset
)

// Fault is one planned fault.
type Fault struct {
	Number int
	// At is the time from the start of the run to the fault. For is the duration of the fault.
	At, For time.Duration
	Kind    Kind
	Target  string
	// Value is the parameter of the fault, such as a delay or the new value of a field. If the fault has no
	// parameter, Value is empty.
	Value string
	// Pods is the maximum number of affected pods. If Pods is 0, Share is the percentage of the pods that are
	// affected. If both are 0, all pods are affected. Draw is the seed of the random choice of pods.
	Pods, Share int
	Draw        uint64
}

func (f Fault) String() string {
	text := fmt.Sprintf("#%d at %.1fs: %s %s", f.Number, f.At.Seconds(), f.Kind, f.Target)
	if f.Value != "" {
		text += " to " + f.Value
	}
	if f.Pods > 0 {
		text += fmt.Sprintf(", %d pods", f.Pods)
	}
	if f.Share > 0 {
		text += fmt.Sprintf(", %d%% of its pods", f.Share)
	}
	if f.For > 0 {
		text += fmt.Sprintf(", for %.1fs", f.For.Seconds())
	}
	return text
}

// usualGap is the mean time between the starts of two faults. Faults may overlap.
const usualGap = 1800 * time.Millisecond

// rule describes how faults of a kind are drawn.
type rule struct {
	kind    Kind
	weight  int
	targets []string
	// least and most are the bounds of For.
	least, most time.Duration
	// occupies is the resource of the target that only one fault may use at a time. If occupies is empty,
	// faults may use the target at the same time.
	occupies string
	draw     func(*planner, *Fault)
}

// rules returns the rules of a full run. Freezes and held connections may last longer than the timeouts of
// heartbeats, Leases and requests.
func rules(sets, deployments []string) []rule {
	roles := []string{"worker-1", "worker-2", cluster.Operator, cluster.Webhook}
	toTemporal := []string{"worker-1/temporal", "worker-2/temporal", "operator/temporal"}
	toAPIServer := []string{"worker-1/apiserver", "worker-2/apiserver", "operator/apiserver", "webhook/apiserver"}
	links := append(append([]string{}, toTemporal...), toAPIServer...)
	const s = time.Second
	return []rule{
		{Kill, 10, roles, s / 5, 4 * s, "process", nil},
		{Kill, 3, []string{cluster.Temporal}, s / 2, 5 * s, "process", nil},
		{Kill, 2, []string{cluster.APIServer}, s / 5, 3 * s, "process", nil},
		{Freeze, 9, roles, 5 * s, 15 * s, "process", nil},
		{Freeze, 1, []string{cluster.Temporal, cluster.APIServer}, 2 * s, 5 * s, "process", nil},
		{Cut, 6, links, s / 2, 6 * s, "link", nil},
		{Hold, 6, links, 2 * s, 14 * s, "link", nil},
		{Lose, 5, links, 2 * s, 14 * s, "link", nil},
		{Delay, 5, links, 3 * s, 9 * s, "link", (*planner).drawDelay},
		{CutEverybody, 2, []string{cluster.APIServer}, s / 2, 2 * s, "everybody", nil},
		{TooMany, 4, toAPIServer, 2 * s, 8 * s, "link", nil},
		{Exhausted, 2, []string{cluster.Temporal}, 4 * s, 8 * s, "process", nil},
		{Conflicts, 4, sets, 3 * s, 8 * s, "conflicts", nil},
		{DeletePods, 5, deployments, 0, 0, "", (*planner).drawPods},
		{Relabel, 5, sets, s, 8 * s, "labels", (*planner).drawPods},
		{Scale, 4, deployments, 0, 0, "", (*planner).drawReplicas},
		{Crash, 4, deployments, 0, 0, "", (*planner).drawCrashes},
		{Reject, 5, deployments, 4 * s, 30 * s, "policy", (*planner).drawRejected},
		{Alias, 8, sets, 0, 0, "image", nil},
		{Image, 16, sets, 0, 0, "", (*planner).drawImage},
		{Bad, 5, sets, 2 * s, 8 * s, "image", (*planner).drawImage},
		{Window, 5, sets, 0, 0, "", oneOf("1", "2", "5", "9", "5%", "10%", "20%")},
		{Partition, 5, sets, 0, 0, "", oneOf("0", "0", "5", "20", "10%", "35%", "80%")},
		{Order, 2, sets, 0, 0, "", oneOf("priority", "scatter", "none")},
		{Env, 1, sets, 0, 0, "", (*planner).drawEnv},
		{Pause, 4, sets, 3 * s, 20 * s, "pause", nil},
		{PauseRun, 5, sets, 5 * s, 45 * s, "run", nil},
		{Remake, 2, sets, s / 5, 3 * s, "set", nil},
	}
}

// mildRules returns the rules of a long run. Mild faults neither kill nor freeze a process, so that the growth
// of each process can be measured.
func mildRules(sets, deployments []string) []rule {
	var mild []rule
	for _, r := range rules(sets, deployments) {
		switch r.kind {
		case Image, Alias, Window, Order, Conflicts, DeletePods, Relabel, Pause, PauseRun, TooMany, Delay, Remake:
			mild = append(mild, r)
		case Cut:
			r.weight, r.most = 2, 2*time.Second
			mild = append(mild, r)
		}
	}
	return mild
}

// planner draws faults.
type planner struct {
	random *rand.Rand
	rules  []rule
	now    time.Duration
	busy   map[string]time.Duration
	images map[string]int
	// left contains the indexes of the rules that have no fault in the plan yet.
	left []int
}

// Plan returns n faults that are drawn by rules. gap is the mean time between two faults. The result depends
// only on the arguments.
func Plan(seed uint64, n int, gap time.Duration, rules []rule) []Fault {
	p := &planner{
		random: rand.New(rand.NewPCG(seed, 0)), rules: rules,
		busy: map[string]time.Duration{}, images: map[string]int{},
	}
	p.left = p.random.Perm(len(p.rules))
	faults := make([]Fault, 0, n)
	for i := range n {
		p.now += gap/3 + time.Duration(p.random.Int64N(int64(gap)*4/3))
		fault := p.next()
		fault.Number = i + 1
		faults = append(faults, fault)
	}
	return faults
}

// next draws faults until a fault does not conflict with the faults in progress. The loop ends, because a
// deletion of pods conflicts with no other fault.
func (p *planner) next() Fault {
	for {
		r, first := p.rule()
		f := Fault{At: p.now, Kind: r.kind, Target: r.targets[p.random.IntN(len(r.targets))], Draw: p.random.Uint64()}
		if r.most > r.least {
			f.For = (r.least + time.Duration(p.random.Int64N(int64(r.most-r.least)))).Round(100 * time.Millisecond)
		}
		if p.busy["set/"+f.Target] > p.now || p.busy[r.occupies+"/"+f.Target] > p.now {
			continue
		}
		if r.kind == Remake && p.busy["run/"+f.Target] > p.now {
			continue // A PauseRun fault of this SidecarSet is in progress.
		}
		if r.occupies != "" {
			// The two seconds cover the restart of a killed process.
			p.busy[r.occupies+"/"+f.Target] = p.now + f.For + 2*time.Second
		}
		if r.draw != nil {
			r.draw(p, &f)
		}
		if first {
			p.left = p.left[1:]
		}
		return f
	}
}

// rule draws a rule by weight, or returns the first rule in left. If the rule is from left, first is true.
func (p *planner) rule() (drawn rule, first bool) {
	if len(p.left) > 0 && p.random.IntN(2) == 0 {
		return p.rules[p.left[0]], true
	}
	total := 0
	for _, r := range p.rules {
		total += r.weight
	}
	at := p.random.IntN(total)
	for _, r := range p.rules {
		if at -= r.weight; at < 0 {
			return r, false
		}
	}
	return p.rules[0], false // This line is not reached, because total is the sum of the weights.
}

func (p *planner) drawDelay(f *Fault) {
	f.Value = (time.Duration(50+p.random.IntN(1450)) * time.Millisecond).String()
}

func (p *planner) drawPods(f *Fault) { f.Pods = 1 + p.random.IntN(12) }

// drawCrashes draws a number of pods far below the maxUnavailable of the last rollout, because the pod of an
// app that crashes during the upgrade uses a slot until the pod is deleted.
func (p *planner) drawCrashes(f *Fault) { f.Pods = 1 + p.random.IntN(2) }

// drawRejected draws a large share of the pods for a limited time, or a small share of the pods without a time
// limit.
func (p *planner) drawRejected(f *Fault) {
	f.Share = 20 + p.random.IntN(80)
	if p.random.IntN(3) == 0 {
		f.Share, f.For = f.Share/3, 0
	}
}

func (p *planner) drawReplicas(f *Fault) { f.Value = fmt.Sprintf("%d%%", 60+p.random.IntN(70)) }

// drawImage draws a new image each time, so that the observer detects late writes of an older image.
func (p *planner) drawImage(f *Fault) {
	p.images[f.Target]++
	f.Value = fmt.Sprintf("v%d", p.images[f.Target]+1)
}

// oneOf returns a function that draws one of values.
func oneOf(values ...string) func(*planner, *Fault) {
	return func(p *planner, f *Fault) { f.Value = values[p.random.IntN(len(values))] }
}

func (p *planner) drawEnv(f *Fault) { f.Value = fmt.Sprintf("E%d", p.random.IntN(1000)) }
