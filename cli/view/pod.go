package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/rollout"
)

// PodPhase is where a pod stands in the rollout of a set.
type PodPhase string

// Where a pod can stand.
const (
	// PodUpdated pods hold the newest version and serve.
	PodUpdated PodPhase = "Updated"
	// PodUpgrading pods were written and are not ready yet.
	PodUpgrading PodPhase = "Upgrading"
	// PodMigrating pods hold a standby twin that is yet to be reset.
	PodMigrating PodPhase = "Migrating"
	// PodFailing pods have a sidecar that cannot start.
	PodFailing PodPhase = "Failing"
	// PodUnready pods hold the newest version, and are not ready for other reasons.
	PodUnready PodPhase = "NotReady"
	// PodRefused pods are old because the API server refused their upgrade.
	PodRefused PodPhase = "Refused"
	// PodNotUpgradable pods differ in more than images.
	PodNotUpgradable PodPhase = "NotUpgradable"
	// PodUnreadable pods have annotations that do not say what they hold.
	PodUnreadable PodPhase = "Unreadable"
	// PodSettling pods wait until an earlier upgrade has settled.
	PodSettling PodPhase = "Settling"
	// PodOld pods hold an older version.
	PodOld PodPhase = "Old"
)

// Pod is a matched pod.
type Pod struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Phase     PodPhase `json:"phase"`
	Ready     bool     `json:"ready"`
	Node      string   `json:"node,omitempty"`
	// Why says what the pod waits for.
	Why string `json:"why,omitempty"`
	// Since is when the upgrade was written, for one that is under way or fails.
	Since *time.Time `json:"since,omitempty"`
}

// quiet pods are counted instead of listed.
func (p *Pod) quiet() bool { return p.Phase == PodUpdated || p.Phase == PodOld }

func (p *Pod) tone() Tone {
	switch p.Phase {
	case PodUpdated:
		return Good
	case PodFailing, PodRefused, PodNotUpgradable, PodUnready, PodUnreadable:
		return Bad
	case PodUpgrading, PodMigrating, PodSettling:
		return Busy
	}
	return Plain
}

// standing is a pod with what is known about it.
type standing struct {
	*rollout.Pod
	set     string
	version *podstate.Version
	refused map[protocol.PodReference]string
}

func (s *standing) phase() PodPhase {
	switch {
	case s.Updated && s.Converged():
		return PodUpdated
	case s.startFailure() != "":
		return PodFailing
	case s.Updated && s.Migrating:
		return PodMigrating
	case s.Updated && s.UnavailableByUpgrade():
		return PodUpgrading
	case s.Updated:
		return PodUnready
	case s.refused[s.Reference()] != "":
		return PodRefused
	case !s.Upgradable:
		return PodNotUpgradable
	case s.Waits():
		return PodSettling
	}
	return PodOld
}

// startFailure says which sidecar cannot start.
func (s *standing) startFailure() string {
	failed := s.version.FailedStart(s.Pod.Pod)
	if failed == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s, image %s", failed.Container, failed.Reason, failed.Image)
}

func (s *standing) pod() Pod {
	p := Pod{Namespace: s.Namespace, Name: s.Name, Phase: s.phase(), Ready: s.Ready, Node: s.Spec.NodeName}
	switch p.Phase {
	case PodFailing:
		p.Why, p.Since = s.startFailure(), s.written()
	case PodRefused:
		// A reason names fields, of which there may be none.
		p.Why = strings.TrimRight(s.refused[s.Reference()], " :;")
	case PodNotUpgradable:
		p.Why = "differs in more than images"
	case PodUnready:
		p.Why = cmp.Or(s.notReady(), "not ready")
	case PodUpgrading, PodMigrating, PodSettling:
		p.Why, p.Since = s.waitsFor(), s.written()
	}
	return p
}

// waitsFor says what keeps an upgrade from being done.
func (s *standing) waitsFor() string {
	switch {
	case !s.Consistent:
		return cmp.Or(s.untaken(), "the kubelet has not taken the change")
	case s.Migrated:
		return "the standby container is emptied next"
	}
	return cmp.Or(s.notReady(), "not ready yet")
}

// untaken names the first container whose status the kubelet reports as waiting.
func (s *standing) untaken() string {
	for _, sidecar := range s.version.Sidecars {
		for _, name := range sidecar.InPod() {
			container, status := podstate.Container(s.Pod.Pod, name, sidecar.Native), podstate.Status(s.Pod.Pod, name, sidecar.Native)
			switch {
			case container == nil || status == nil:
			case status.State.Waiting != nil && status.State.Waiting.Reason != "":
				return name + ": " + status.State.Waiting.Reason
			case status.Image != container.Image && sidecar.Native:
				return name + ": runs " + status.Image + " still; kubelets before 1.33 do not restart a native sidecar"
			case status.Image != container.Image:
				return name + ": runs " + status.Image + " still"
			}
		}
	}
	return ""
}

// notReady names the containers that are not.
func (s *standing) notReady() string {
	var names []string
	for i := range s.Status.ContainerStatuses {
		if status := &s.Status.ContainerStatuses[i]; !status.Ready {
			names = append(names, status.Name)
		}
	}
	for _, status := range podstate.Natives(s.Pod.Pod) {
		if status != nil && !status.Ready {
			names = append(names, status.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "not ready: " + strings.Join(names, ", ")
}

func (s *standing) written() *time.Time {
	// Annotations were read already, so they can be.
	states, err := record.InPlaceStates(s.Annotations)
	if err != nil {
		return nil
	}
	if at := states[s.set].UpdateTimestamp; !at.IsZero() {
		return &at.Time
	}
	return nil
}

// owner is the workload of a pod: that of a ReplicaSet, whose name holds the hash of its
// template, is its Deployment.
func owner(pod *corev1.Pod) (kind, name string) {
	controller := metav1.GetControllerOf(pod)
	if controller == nil {
		return "", ""
	}
	if hash := pod.Labels["pod-template-hash"]; controller.Kind == "ReplicaSet" && hash != "" {
		if deployment, ok := strings.CutSuffix(controller.Name, "-"+hash); ok {
			return "Deployment", deployment
		}
	}
	return controller.Kind, controller.Name
}
