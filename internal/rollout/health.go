package rollout

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/podstate"
)

// Illness is the reason why a pod is not healthy. The zero value means that the pod is healthy.
type Illness int8

// A pod with the illness UnreadyTooLong has not been ready for the duration UnreadyFor of the step. The app of
// a pod with the illness AppRestarted has restarted at least AppRestarts times since the upgrade of the pod.
const (
	UnreadyTooLong Illness = iota + 1
	AppRestarted
)

// describe returns a description for users. The description of a healthy pod is empty.
func (i Illness) describe(step *protocol.Step) string {
	switch i {
	case UnreadyTooLong:
		return "not ready for " + FormatDuration(step.UnreadyFor)
	case AppRestarted:
		return fmt.Sprintf("the app restarted at least %d times", step.AppRestarts)
	}
	return ""
}

// Health records how long this process has observed each pod as not ready, and how often the app of the pod has
// restarted. Health uses only the clock of this process, because the clocks of nodes may differ. The zero value
// is ready for concurrent use.
type Health struct {
	mu   sync.Mutex
	sets map[string]healthOfSet
}

type healthOfSet struct {
	rollout string
	pods    map[types.UID]observedHealth
}

type observedHealth struct {
	updated bool
	// unready is the time of the first observation in which the pod was not ready, since the transition of
	// its condition Ready. unready is zero if the pod is ready.
	unready    time.Time
	transition metav1.Time
	// restarts is the number of restarts of the app. before is the number of restarts before the upgrade of
	// the pod, or in the first observation.
	restarts, before int32
	// dead is set while the pod has not been ready for UnreadyFor, and its upgrade is not the cause: the pod is
	// not updated, or was unavailable before its upgrade. A dead pod that becomes ready counts as recovering
	// until the time recovering.
	dead       bool
	recovering time.Time
}

// Observe sets Unhealthy and Recovering of the pods of a SidecarSet. rollout identifies the content of the
// SidecarSet and the attempt to roll it out, because a retry upgrades the same pods again. next is the time until
// a pod may count as not ready for too long, or stops counting as recovering. next is 0 if there is no such pod.
func (h *Health) Observe(set, rollout string, pods []Pod, step *protocol.Step, now time.Time) (next time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	earlier := h.sets[set]
	if earlier.rollout != rollout {
		earlier = healthOfSet{}
	}
	fresh := healthOfSet{rollout: rollout, pods: make(map[types.UID]observedHealth, len(pods))}
	for i := range pods {
		pod := &pods[i]
		before, known := earlier.pods[pod.UID]
		observed := observe(pod, before, known, now)
		pod.Unhealthy = observed.illness(step, now)
		observed.dead = pod.Unhealthy == UnreadyTooLong && (!pod.Updated || pod.UnavailableBefore)
		if observed.recovering = before.recovering; before.dead && !observed.dead {
			observed.recovering = now.Add(step.UnreadyFor)
		}
		pod.Recovering = now.Before(observed.recovering)
		fresh.pods[pod.UID] = observed
		if left := observed.left(step, now); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	if h.sets == nil {
		h.sets = map[string]healthOfSet{}
	}
	h.sets[set] = fresh
	return next
}

// Forget frees the observations of the pods of a SidecarSet.
func (h *Health) Forget(set string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sets, set)
}

func observe(pod *Pod, before observedHealth, known bool, now time.Time) observedHealth {
	observed := observedHealth{updated: pod.Updated, restarts: appRestarts(pod.Pod)}
	switch {
	case !known:
		observed.before = observed.restarts
	case before.updated != pod.Updated:
		observed.before = min(before.restarts, observed.restarts)
	default:
		// The restart count may be lost if the node is recreated.
		observed.before = min(before.before, observed.restarts)
	}
	ready := podstate.Condition(pod.Pod, corev1.PodReady)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		return observed
	}
	observed.unready, observed.transition = now, ready.LastTransitionTime
	// The time before an upgrade counts only if the upgrade is not the cause of the unavailability.
	upgraded := before.updated != pod.Updated && !pod.UnavailableBefore
	if known && !before.unready.IsZero() && !upgraded && before.transition.Equal(&observed.transition) {
		observed.unready = before.unready
	}
	return observed
}

// left returns the time until the pod counts as not ready for too long, or stops counting as recovering. left
// returns 0 for all other pods.
func (o observedHealth) left(step *protocol.Step, now time.Time) time.Duration {
	if left := o.recovering.Sub(now); left > 0 {
		return left
	}
	if o.unready.IsZero() {
		return 0
	}
	return max(step.UnreadyFor-now.Sub(o.unready), 0)
}

func (o observedHealth) illness(step *protocol.Step, now time.Time) Illness {
	switch {
	case step.UnreadyFor > 0 && !o.unready.IsZero() && now.Sub(o.unready) >= step.UnreadyFor:
		return UnreadyTooLong
	case step.AppRestarts > 0 && o.restarts-o.before >= step.AppRestarts:
		return AppRestarted
	}
	return 0
}

// appRestarts returns the sum of the restarts of the containers that are not injected.
func appRestarts(pod *corev1.Pod) (restarts int32) {
	for i := range pod.Spec.Containers {
		if container := &pod.Spec.Containers[i]; !inject.Injected(container) {
			if status := podstate.Status(pod, container.Name, false); status != nil {
				restarts += status.RestartCount
			}
		}
	}
	return restarts
}
