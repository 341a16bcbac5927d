package rollout

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/podstate"
)

// byCost compares pods by what an upgrade of them costs, the cheapest first
// (SPEC §7.3): unscheduled, pending, not ready, ready for a shorter time, more
// restarts, newer; the name makes it a total order.
func byCost(a, b *Pod) int {
	return cmp.Or(
		compareBool(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(phaseRank(a.Status.Phase), phaseRank(b.Status.Phase)),
		compareBool(a.Ready, b.Ready),
		podstate.ReadySince(b.Pod).Compare(podstate.ReadySince(a.Pod)),
		cmp.Compare(restarts(b.Pod), restarts(a.Pod)),
		b.CreationTimestamp.Time.Compare(a.CreationTimestamp.Time),
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func phaseRank(phase corev1.PodPhase) int {
	switch phase {
	case corev1.PodPending:
		return 0
	case corev1.PodUnknown:
		return 1
	}
	return 2
}

func restarts(pod *corev1.Pod) int32 {
	var most int32
	for i := range pod.Status.ContainerStatuses {
		most = max(most, pod.Status.ContainerStatuses[i].RestartCount)
	}
	return most
}
