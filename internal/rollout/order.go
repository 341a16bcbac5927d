package rollout

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/podstate"
)

// candidate is a pod with its sort keys.
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

// cost returns a sort key that is higher if an upgrade of the pod is more disruptive. An unscheduled pod has the
// lowest cost, followed by a pending pod, a pod that is not ready, and a ready pod. A pod on a node that does not
// respond has the highest cost, because such a pod cannot be upgraded yet.
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
	if pod.NodeLost {
		c += 2
	}
	return c
}

// compare orders candidates (SPEC §7.3). The priority comes first, then a lower cost, a shorter time since the
// pod became ready, more restarts, and a later creation. Namespace and name break ties.
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

// restarts returns the highest restart count of the containers and native sidecars of a pod.
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

// first returns the first n candidates, in order. A plan needs few candidates, so first sorts only few
// candidates, and compares most other candidates only once.
func first(all []candidate, n int) []candidate {
	kept := make([]candidate, 0, min(2*n, len(all)))
	sorted := false
	for i := range all {
		if sorted && all[i].compare(&kept[n-1]) > 0 || n == 0 {
			continue
		}
		kept = append(kept, all[i])
		if len(kept) == 2*n {
			sortCandidates(kept)
			kept, sorted = kept[:n], true
		}
	}
	sortCandidates(kept)
	return kept[:min(n, len(kept))]
}
