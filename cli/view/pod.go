package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/rollout"
)

// PodPhase is the phase of a pod in the rollout of a SidecarSet.
type PodPhase string

// PodPhase has one of these values.
const (
	// PodUpdated means that the pod has the newest version and has converged.
	PodUpdated PodPhase = "Updated"
	// PodUpgrading means that the pod was upgraded and is not ready yet.
	PodUpgrading PodPhase = "Upgrading"
	// PodMigrating means that the pod has a standby twin that is not reset yet.
	PodMigrating PodPhase = "Migrating"
	// PodFailing means that a sidecar of the pod cannot start.
	PodFailing PodPhase = "Failing"
	// PodUnready means that the pod has the newest version, and is not ready for a reason other than the
	// upgrade.
	PodUnready PodPhase = "NotReady"
	// PodRejected means that the pod is old because the API server rejected the upgrade.
	PodRejected PodPhase = "Refused"
	// PodNotUpgradable means that the pod cannot be upgraded in place.
	PodNotUpgradable PodPhase = "NotUpgradable"
	// PodUnreadable means that the annotations of the pod cannot be read.
	PodUnreadable PodPhase = "Unreadable"
	// PodWaiting means that the pod waits until an earlier upgrade has converged, or until its node responds.
	PodWaiting PodPhase = "Settling"
	// PodOld means that the pod has an older version.
	PodOld PodPhase = "Old"
	// PodMissing means that the pod matches and was not injected.
	PodMissing PodPhase = "Missing"
)

// Pod is a matched pod.
type Pod struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Phase     PodPhase `json:"phase"`
	Ready     bool     `json:"ready"`
	Node      string   `json:"node,omitempty"`
	// Reason is the reason why the pod waits.
	Reason string `json:"why,omitempty"`
	// Since is the time of the write of an upgrade that is in progress or has failed.
	Since *time.Time `json:"since,omitempty"`
	// nodeCommand is the command for the lost node for which the pod waits.
	nodeCommand string
	// lost is set if the pod is ready in the API server although the node of the pod does not exist.
	lost bool
	// updated is set if the pod has the newest content. inPlace is set if the pod has the newest content, or
	// can get the newest content by an upgrade in place.
	updated, inPlace bool
	// blocked is set if a container that is not a sidecar of the SidecarSet cannot start.
	blocked bool
	// unreadyContainer is the name of a container that has started and is not ready.
	unreadyContainer string
}

// counted reports whether the output only counts the pod, and does not list the pod.
func (p *Pod) counted() bool { return (p.Phase == PodUpdated || p.Phase == PodOld) && !p.lost }

// settled reports whether no upgrade of the pod is in progress.
func (p *Pod) settled() bool { return p.counted() || p.lost || p.Phase == PodNotUpgradable }

func (p *Pod) tone() Tone {
	switch p.Phase {
	case PodUpdated:
		return Good
	case PodFailing, PodRejected, PodNotUpgradable, PodUnready, PodUnreadable:
		return Bad
	case PodUpgrading, PodMigrating, PodWaiting:
		return Busy
	}
	return Plain
}

// newPod describes a pod. rejection is the reason why an upgrade of the pod was rejected, or empty.
func newPod(pod *rollout.Pod, version *podstate.Version, rejection string) Pod {
	p := Pod{Namespace: pod.Namespace, Name: pod.Name, Ready: pod.Ready, Node: pod.Spec.NodeName, updated: pod.Updated, inPlace: inPlace(pod), blocked: version.Blocked(pod.Pod), unreadyContainer: unreadyContainer(pod.Pod)}
	failed := version.FailedStart(pod.Pod)
	switch {
	case pod.Updated && pod.Converged():
		p.Phase = PodUpdated
	case failed != nil:
		p.Phase, p.Reason = PodFailing, fmt.Sprintf("%s: %s, image %s", failed.Container, failed.Reason, failed.Image)
	case pod.Updated && pod.Migrating:
		p.Phase, p.Reason = PodMigrating, waitsFor(pod, version)
	case pod.Updated:
		p.Phase, p.Reason = updatedPhase(pod, version)
	case rejection != "":
		// The message of a rejection may end with a separator, such as a colon.
		p.Phase, p.Reason = PodRejected, strings.TrimRight(rejection, " :;")
	case !pod.Upgradable:
		p.Phase, p.Reason = PodNotUpgradable, differs
		if podstate.CountsRestarts(pod.Pod) {
			p.Reason = countsRestarts
		}
	case pod.Waits():
		p.Phase, p.Reason = PodWaiting, waitsFor(pod, version)
	default:
		p.Phase = PodOld
	}
	if p.Phase == PodFailing || p.tone() == Busy && !waitsForNode(pod) {
		p.Since = writtenAt(pod.Pod, version.Set)
	}
	return p
}

// waitsForNode reports whether a pod waits only until its node responds. The time of an earlier upgrade is not
// the start of this wait.
func waitsForNode(pod *rollout.Pod) bool { return pod.NodeLost && pod.Consistent && !pod.Updated }

// updatedPhase returns the phase and the reason of an updated pod that has not converged.
func updatedPhase(pod *rollout.Pod, version *podstate.Version) (phase PodPhase, reason string) {
	switch {
	case pod.Resizing && pod.Consistent:
		return PodUpgrading, version.ResizeWait(pod.Pod)
	case pod.UnavailableByUpgrade():
		return PodUpgrading, waitsFor(pod, version)
	}
	return PodUnready, cmp.Or(notReady(pod.Pod), "not ready")
}

// inPlace reports whether a pod has the newest content, or can get the newest content by an upgrade in place.
func inPlace(pod *rollout.Pod) bool { return pod.Updated || pod.Upgradable }

// waitsFor describes the event for which an upgrade in progress waits.
func waitsFor(pod *rollout.Pod, version *podstate.Version) string {
	switch {
	case !pod.Consistent:
		return cmp.Or(pendingContainer(pod.Pod, version), "the kubelet has not observed the change")
	case pod.Migrated:
		return "the standby container is reset next"
	case pod.NodeLost:
		return "its node does not respond"
	}
	return cmp.Or(notReady(pod.Pod), "not ready yet")
}

// pendingContainer describes the first container that does not run its new image yet.
func pendingContainer(pod *corev1.Pod, version *podstate.Version) string {
	for _, sidecar := range version.Sidecars {
		for _, name := range sidecar.InPod() {
			container, status := podstate.Container(pod, name, sidecar.Native), podstate.Status(pod, name, sidecar.Native)
			switch {
			case container == nil || status == nil || podstate.FailedBefore(status, container.Image):
			case status.State.Waiting != nil && status.State.Waiting.Reason != "":
				return name + ": " + status.State.Waiting.Reason
			case status.Image != container.Image && sidecar.Native:
				return name + ": still runs " + status.Image + "; kubelets before 1.33 do not restart a native sidecar"
			case status.Image != container.Image:
				return name + ": still runs " + status.Image
			}
		}
	}
	return ""
}

// notReady names the containers that are not ready, with the reason for each container that cannot start. If
// all containers are ready, notReady returns an empty string.
func notReady(pod *corev1.Pod) string {
	var names, failed []string
	add := func(status *corev1.ContainerStatus, native bool) {
		if status == nil || status.Ready {
			return
		}
		names = append(names, status.Name)
		container := podstate.Container(pod, status.Name, native)
		if reason, stuck := podstate.StartFailure(status); stuck && container != nil && !podstate.FailedBefore(status, container.Image) {
			failed = append(failed, status.Name+": "+reason+", image "+container.Image)
		}
	}
	for i := range pod.Status.ContainerStatuses {
		add(&pod.Status.ContainerStatuses[i], false)
	}
	for _, status := range podstate.Natives(pod) {
		add(status, true)
	}
	if len(names) == 0 {
		return ""
	}
	text := "not ready: " + strings.Join(names, ", ")
	if len(failed) > 0 {
		text += " (" + strings.Join(failed, "; ") + ")"
	}
	return text
}

// writtenAt returns the time of the newest upgrade of a pod, or nil.
func writtenAt(pod *corev1.Pod, set string) *time.Time {
	states, err := record.InPlaceStates(pod.Annotations)
	if at := states[set].UpdateTimestamp; err == nil && !at.IsZero() {
		return &at.Time
	}
	return nil
}
