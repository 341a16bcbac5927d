package main

import (
	"container/heap"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

// What the activities do, in their terms (activities/poll.go, next_batch.go,
// upgrade_batch.go), and what a task costs on the local stack.
const (
	refillTime   = 30 * time.Second
	lookInterval = time.Second
	// dispatch is how long a workflow task and an activity task take to reach a worker.
	dispatch = 20 * time.Millisecond
	// watchDelay is how long a write takes to be shown by the cache.
	watchDelay = 20 * time.Millisecond
)

// options of a simulation.
type options struct {
	pods    int
	window  string
	seed    uint64
	qps     float64
	burst   int
	batches int
	// planCost is the virtual time that a plan takes for each pod. Real time would
	// make two runs differ.
	planCost time.Duration
}

// figures are what a simulation shows. All but the last three are the same in each
// run with the same options.
type figures struct {
	Batches, Plans, Upgraded, MostInFlight int
	Virtual, Ideal                         time.Duration
	// Planning is the processor time of all plans, and Longest that of one.
	Planning, Longest time.Duration
	// PlannerHeap is what the planner keeps between plans, in bytes.
	PlannerHeap uint64
}

// simulation is one rollout in virtual time.
type simulation struct {
	options options
	set     *v1alpha1.SidecarSet
	stages  *stages
	pods    []*corev1.Pod
	index   map[types.UID]int
	limiter *rate.Limiter
	planner rollout.PopulationCache
	now     time.Time
	events  events
	// unseen writes are on their way or not in the cache yet; lastWrite is when the
	// last of them is.
	unseen    int
	lastWrite time.Time
	inFlight  int
	figures   figures
}

func newSimulation(o options) (*simulation, error) {
	s := &simulation{options: o, set: newSet(o.window), now: time.Unix(1000, 0), index: make(map[types.UID]int, o.pods)}
	var err error
	if s.stages, err = newStages(s.set); err != nil {
		return nil, err
	}
	s.limiter = rate.NewLimiter(rate.Limit(o.qps), o.burst)
	s.pods = make([]*corev1.Pod, o.pods)
	for i := range s.pods {
		s.pods[i] = s.stages.pod(i, &s.stages.before)
		s.index[s.pods[i].UID] = i
	}
	return s, nil
}

// run upgrades the pods, or as many batches of them as the options say.
func (s *simulation) run() (figures, error) {
	began := s.now
	before := heapInUse()
	for s.options.batches == 0 || s.figures.Batches < s.options.batches {
		plan, err := s.nextBatch()
		if err != nil {
			return s.figures, err
		}
		if s.figures.PlannerHeap == 0 {
			s.figures.PlannerHeap = heapInUse() - min(before, heapInUse())
		}
		if len(plan.Pods) == 0 {
			break
		}
		s.figures.Batches++
		if err := s.upgradeBatch(plan); err != nil {
			return s.figures, err
		}
	}
	s.figures.Virtual = s.now.Sub(began)
	window := 0
	if plan, err := s.plan(); err == nil {
		window = plan.Slots
	}
	s.figures.Ideal = ideal(s.options, s.figures.Upgraded, window)
	return s.figures, nil
}

func heapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// nextBatch waits until there is something to upgrade. A plan without pods means that
// all are upgraded and ready.
func (s *simulation) nextBatch() (rollout.Plan, error) {
	s.advance(s.now.Add(dispatch))
	var firstFree time.Time
	for {
		if s.unseen > 0 {
			s.advance(s.lastWrite)
		}
		plan, err := s.plan()
		if err != nil || plan.Phase.Ended() {
			return plan, err
		}
		wait := lookInterval
		if len(plan.Pods) > 0 {
			if firstFree.IsZero() {
				firstFree = s.now
			}
			if wait = plan.BatchWindow() - s.now.Sub(firstFree); wait <= 0 {
				return plan, nil
			}
		}
		s.sleep(wait)
	}
}

func (s *simulation) upgradeBatch(batch rollout.Plan) error {
	s.advance(s.now.Add(dispatch))
	end := s.now.Add(refillTime)
	left := append(batch.Pods, batch.Reserve...)
	taken := map[protocol.PodReference]bool{}
	for len(left) > 0 && s.now.Before(end) {
		unseen := s.unseen
		plan, err := s.plan()
		if err != nil {
			return err
		}
		refill := plan.Refill(left, taken, unseen)
		left = refill.Left
		for _, chosen := range refill.Now {
			taken[chosen.PodReference] = true
			s.write(s.index[chosen.UID])
		}
		if refill.Others {
			break
		}
		s.sleep(lookInterval)
	}
	// The batch ends when its writes have.
	s.advance(s.lastWrite.Add(-watchDelay))
	return nil
}

// plan does what an activity does at each look.
func (s *simulation) plan() (rollout.Plan, error) {
	began := processorTime()
	population, err := s.planner.Population(s.set, s.pods, nil)
	if err != nil {
		return rollout.Plan{}, err
	}
	plan, err := rollout.Next(s.set, population, nil)
	took := processorTime() - began
	s.figures.Plans++
	s.figures.Planning += took
	s.figures.Longest = max(s.figures.Longest, took)
	s.advance(s.now.Add(s.planTime()))
	return plan, err
}

// processorTime is what this process has used, for collecting garbage, too.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func (s *simulation) planTime() time.Duration {
	return time.Duration(len(s.pods)) * s.options.planCost
}

// sleep passes the pause between two looks, and then waits for a change.
func (s *simulation) sleep(atMost time.Duration) {
	s.advance(s.now.Add(rollout.Pause(s.planTime())))
	if until := s.now.Add(atMost); len(s.events) > 0 && s.events[0].at.Before(until) {
		s.advance(s.events[0].at)
	} else {
		s.advance(until)
	}
}

// write has a pod upgraded when the client's rate limit lets the request pass.
func (s *simulation) write(i int) {
	at := s.now.Add(s.limiter.ReserveN(s.now, 1).DelayFrom(s.now)).Add(watchDelay)
	s.unseen++
	s.lastWrite = at
	heap.Push(&s.events, podEvent{at, i, false})
}

// advance lets time pass on the nodes and in the cache.
func (s *simulation) advance(to time.Time) {
	for len(s.events) > 0 && !s.events[0].at.After(to) {
		event := heap.Pop(&s.events).(podEvent)
		if event.ready {
			s.pods[event.pod] = s.stages.pod(event.pod, &s.stages.after)
			s.inFlight--
			continue
		}
		s.pods[event.pod] = s.stages.pod(event.pod, &s.stages.restarting)
		s.unseen--
		s.inFlight++
		s.figures.Upgraded++
		s.figures.MostInFlight = max(s.figures.MostInFlight, s.inFlight)
		heap.Push(&s.events, podEvent{event.at.Add(restartTime(s.options.seed, event.pod)), event.pod, true})
	}
	if to.After(s.now) {
		s.now = to
	}
}

// ideal is how long a mover needs that has the same window and rate limit, and writes
// the next pod as soon as one is ready; until the last write, if only some batches are
// made.
func ideal(o options, pods, window int) time.Duration {
	start := time.Unix(1000, 0)
	limiter := rate.NewLimiter(rate.Limit(o.qps), o.burst)
	var busy events
	now, last := start, start
	for i := range pods {
		if len(busy) >= max(window, 1) {
			if freed := heap.Pop(&busy).(podEvent).at; freed.After(now) {
				now = freed
			}
		}
		now = now.Add(limiter.ReserveN(now, 1).DelayFrom(now))
		ready := now.Add(restartTime(o.seed, i))
		heap.Push(&busy, podEvent{ready, i, true})
		if ready.After(last) {
			last = ready
		}
	}
	if o.batches > 0 {
		return now.Sub(start)
	}
	return last.Sub(start)
}

// podEvent is a pod that was written, or is ready again.
type podEvent struct {
	at    time.Time
	pod   int
	ready bool
}

// events is a heap, the next one on top.
type events []podEvent

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].pod < e[j].pod
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(podEvent)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
