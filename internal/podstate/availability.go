package podstate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
)

// rolloutEnded reports whether the rollout of the content with the given hash has ended. If upgraded is true,
// the rollout must have ended after newest, the newest upgrade of the pod, because the same content may be
// rolled out again.
func (v *Version) rolloutEnded(hash string, newest record.State, upgraded bool) bool {
	for i := range v.Good {
		if good := &v.Good[i]; good.Hash == hash {
			return !upgraded || endedSince(good, newest)
		}
	}
	return false
}

// endedSince reports whether a rollout ended after an upgrade. A good revision without a resourceVersion was
// recorded before the first rollout of Outrigger, so only upgrades by OpenKruise are older than this good
// revision. A state without a SidecarSetVersion is older than each rollout with a resourceVersion.
func endedSince(good *v1alpha1.GoodRevision, upgrade record.State) bool {
	switch {
	case good.ResourceVersion == "":
		return !upgrade.Ours()
	case upgrade.SidecarSetVersion == "":
		return true
	}
	order, err := resourceversion.CompareResourceVersion(upgrade.SidecarSetVersion, good.ResourceVersion)
	return err == nil && order <= 0
}

// unavailableBefore reports whether the pod was unavailable at its upgrade and has not been ready since. The
// transition time of the Ready condition at the upgrade is compared with the current transition time. The
// kubelet changes the transition time whenever the pod becomes ready or unready. Both times come from the
// kubelet, so clocks of different machines are not compared.
func unavailableBefore(pod *corev1.Pod, set string) bool {
	if Ready(pod) {
		return false
	}
	since, recorded := record.UnavailableSince(pod.Annotations, set)
	if recorded && since.IsZero() {
		return neverReady(pod)
	}
	transition := ReadyTransition(pod)
	return recorded && since.Equal(&transition)
}

// neverReady reports whether the pod still has its first Ready condition. The pod had no Ready condition at
// its upgrade, because the pod was not scheduled. The kubelet writes the start time and the first Ready
// condition in the same update of the status, in whole seconds.
func neverReady(pod *corev1.Pod) bool {
	condition, started := Condition(pod, corev1.PodReady), pod.Status.StartTime
	return condition == nil || started == nil || condition.LastTransitionTime.Sub(started.Time) <= time.Second
}

// ReadyTransition returns the last transition time of the Ready condition of a pod, or the zero time.
func ReadyTransition(pod *corev1.Pod) metav1.Time {
	if condition := Condition(pod, corev1.PodReady); condition != nil {
		return condition.LastTransitionTime
	}
	return metav1.Time{}
}
