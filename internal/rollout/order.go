package rollout

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/podstate"
)

// candidate is a pod with what it is ordered by, read once.
type candidate struct {
	*Pod
	rank       rank
	cost       int8
	readySince time.Time
	restarts   int32
}

func newCandidate(pod *Pod, p *priority) candidate {
	return candidate{
		Pod: pod, rank: p.rank(pod), cost: cost(pod),
		readySince: podstate.ReadySince(pod.Pod), restarts: restarts(pod.Pod),
	}
}

// cost grows with what an upgrade takes away: an unscheduled pod, a pending
// one, one that is not ready, one that serves.
func cost(pod *Pod) int8 {
	var c int8
	if pod.Spec.NodeName != "" {
		c += 6
	}
	switch pod.Status.Phase {
	case corev1.PodPending:
	case corev1.PodUnknown:
		c += 2
	default:
		c += 4
	}
	if pod.Ready {
		c++
	}
	return c
}

// compare orders candidates (SPEC §7.3): by priority, then the cheapest first,
// ready for a shorter time, more restarts, newer; the name makes it total.
func (a *candidate) compare(b *candidate) int {
	if a.rank != b.rank {
		if order := a.rank.compare(b.rank); order != 0 {
			return order
		}
	}
	if a.cost != b.cost {
		return cmp.Compare(a.cost, b.cost)
	}
	return cmp.Or(
		b.readySince.Compare(a.readySince),
		cmp.Compare(b.restarts, a.restarts),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name),
	)
}

// restarts are those of the container, or native sidecar, that restarted most.
func restarts(pod *corev1.Pod) int32 {
	var most int32
	for i := range pod.Status.ContainerStatuses {
		most = max(most, pod.Status.ContainerStatuses[i].RestartCount)
	}
	for _, status := range podstate.Natives(pod) {
		if status != nil {
			most = max(most, status.RestartCount)
		}
	}
	return most
}

func sortCandidates(all []candidate) {
	slices.SortFunc(all, func(a, b candidate) int { return a.compare(&b) })
}

// first returns the n candidates that go first, in order. A plan needs few of
// them, so all the others are compared once or twice instead of sorted.
func first(all []candidate, n int) []candidate {
	if n >= len(all) {
		sortCandidates(all)
		return all
	}
	kept := lastOnTop(all[:n:n])
	heap.Init(kept)
	for i := n; i < len(all) && n > 0; i++ {
		if all[i].compare(&kept[0]) < 0 {
			kept[0], all[i] = all[i], kept[0]
			heap.Fix(kept, 0)
		}
	}
	sortCandidates(kept)
	return kept
}

// lastOnTop is a heap of a fixed number of candidates, the one that goes last on
// top.
type lastOnTop []candidate

func (h lastOnTop) Len() int           { return len(h) }
func (h lastOnTop) Less(i, j int) bool { return h[i].compare(&h[j]) > 0 }
func (h lastOnTop) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push and Pop make it a heap.Interface; its length never changes.
func (h lastOnTop) Push(any) {}
func (h lastOnTop) Pop() any { return nil }
