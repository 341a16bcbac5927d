package view

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

// lateAfter is the duration of an upgrade in progress after which the pod needs attention.
const lateAfter = 30 * time.Second

// LatePod is a pod that uses a slot, and whose upgrade has been in progress for longer than lateAfter.
type LatePod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Since     time.Time `json:"since"`
}

// late reports whether the pod uses a slot and the upgrade of the pod has been in progress for longer than
// lateAfter. A pod in phase PodMigrating is never late, because the pod serves requests, and a hot upgrade may
// take a long time.
func (p *Pod) late(now time.Time) bool {
	return p.Since != nil && (p.Phase == PodUpgrading || p.Phase == PodWaiting) && now.Sub(*p.Since) > lateAfter
}

// latePod returns the late pod whose upgrade has been in progress the longest. If no pod is late, or if the
// rollout does not wait, latePod returns nil.
func (r *Rollout) latePod(now time.Time) *Pod {
	if r.Phase != protocol.PhaseWaiting {
		return nil
	}
	return r.longestOf(func(pod *Pod) bool { return pod.late(now) })
}

// WaitsFor returns the pod that the status of a SidecarSet names as an example of the pods for which the
// rollout waits. If the status names no pod, namespace and name are empty.
func WaitsFor(set *v1alpha1.SidecarSet) (namespace, name string) {
	for _, c := range set.Status.Conditions {
		if c.Type == v1alpha1.ConditionProgressing && c.Reason == v1alpha1.ReasonWaitingForPods {
			_, after, _ := strings.Cut(c.Message, rollout.WaitingFor)
			pod, _, _ := strings.Cut(after, ";")
			namespace, name, _ = strings.Cut(pod, "/")
		}
	}
	return namespace, name
}

// lateOf returns a LatePod if pod is late, or nil. pod may be nil.
func lateOf(set *v1alpha1.SidecarSet, pod *corev1.Pod, now time.Time) *LatePod {
	if pod == nil {
		return nil
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil
	}
	state, err := version.Of(pod)
	if err != nil {
		return nil
	}
	if shown := newPod(&rollout.Pod{Pod: pod, State: state}, version, ""); shown.late(now) {
		return &LatePod{pod.Namespace, pod.Name, *shown.Since}
	}
	return nil
}

// podNotReady precedes the name of a late pod in Attention.
const podNotReady = "PodNotReady:"

// attentionText returns the text of Attention, with the time for which a late pod has not been ready.
// Attention does not contain this time, because a watch prints a line for each change of Attention.
func (s *Summary) attentionText(now time.Time) string {
	text := strings.Join(s.Attention, ",")
	if late := s.NotReady; late != nil {
		entry := podNotReady + late.Namespace + "/" + late.Name
		text = strings.Replace(text, entry, entry+" for "+age(now, late.Since), 1)
	}
	return text
}

// stop returns the command that pauses a rollout. If the rollout is paused, or if no pod is left to upgrade,
// stop returns an empty string.
func (r *Rollout) stop() string {
	if r.Counts.Remaining == 0 || r.Pause != nil || r.PausedBySpec {
		return ""
	}
	return "stop it: kubectl sidecarset pause " + r.Name
}

// unreadyReasons returns the commands for the pod whose upgrade has been in progress the longest. If the node
// of the pod or another container is the cause, unreadyReasons returns nil. The pod need not be late, because
// a user of the command why has already noticed the delay.
func (r *Rollout) unreadyReasons(now time.Time) (found []string) {
	pod := r.longest()
	if pod == nil || pod.Phase != PodUpgrading && pod.Phase != PodWaiting || pod.nodeCommand != "" || pod.blocked || r.starting()(pod) || r.partFails() || r.rollback == v1alpha1.ReasonRollingBack {
		return nil
	}
	logs := pod.logsCommand()
	if logs == "" && !pod.late(now) {
		return nil // The containers have not started yet.
	}
	if logs != "" {
		found = append(found, "to see its log: "+logs)
	}
	back := "if the new version is the cause, " + r.undoCommand()
	if stop := r.stop(); stop != "" {
		back += "; or " + stop
	}
	return append(found, back)
}

// logsCommand returns the command that shows the log of a container that has started and is not ready. If the
// pod has no such container, or if p is nil, logsCommand returns an empty string.
func (p *Pod) logsCommand() string {
	if p == nil || p.unreadyContainer == "" {
		return ""
	}
	return "kubectl logs " + p.Name + " -n " + p.Namespace + " -c " + p.unreadyContainer
}

// unreadyContainer returns the name of the first container or native sidecar that has started and is not
// ready, or an empty string.
func unreadyContainer(pod *corev1.Pod) string {
	var statuses []*corev1.ContainerStatus
	for i := range pod.Status.ContainerStatuses {
		statuses = append(statuses, &pod.Status.ContainerStatuses[i])
	}
	for _, status := range podstate.Natives(pod) {
		if status != nil {
			statuses = append(statuses, status)
		}
	}
	for _, s := range statuses {
		if started := s.State.Running != nil || s.LastTerminationState.Terminated != nil; started && !s.Ready {
			return s.Name
		}
	}
	return ""
}
