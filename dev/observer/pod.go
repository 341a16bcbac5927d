package observer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// RejectedLabel is the label of pods whose upgrades a policy rejects. These pods keep their
// sidecars.
const RejectedLabel = "chaos-rejected"

// historyLength is the number of events of a pod that a report shows.
const historyLength = 40

// pod is the known state of one pod.
type pod struct {
	*corev1.Pod
	// hashes contains the hash of each SidecarSet, and blank contains the hash without images. The annotations
	// of the pod contain both hashes.
	hashes, blank map[string]string
	// active contains the active twin of each hot sidecar.
	active map[string]string
	// upgrades contains, by SidecarSet, the upgrades that make the pod unavailable.
	upgrades map[string]upgrade
	// created contains the images of the containers when the pod was first observed.
	created map[string]string
	history []string
}

// upgrade is an upgrade that makes a pod unavailable. If the pod served at the time of the write, the upgrade
// uses a slot.
type upgrade struct {
	since time.Time
	slot  bool
	// atWrite is true if the slot begins with the write. If atWrite is false, the pod did not serve at the time of
	// the write, and the slot begins when the pod serves again. A writer observes such a slot with a delay.
	atWrite bool
	// unreadySince is the transition time of the Ready condition when a pod that did not serve was written.
	// While the condition has this time, the pod uses no slot. A kubelet that corrects a wrong report restores
	// this time (SPEC §7.5).
	unreadySince time.Time
}

func newPod(object *corev1.Pod, before *pod) (*pod, error) {
	p := &pod{Pod: object, upgrades: map[string]upgrade{}}
	if before != nil {
		p.upgrades, p.created, p.history = before.upgrades, before.created, before.history
	} else {
		p.created = map[string]string{}
		for i := range object.Spec.Containers {
			p.created[object.Spec.Containers[i].Name] = object.Spec.Containers[i].Image
		}
	}
	var err error
	if p.hashes, err = hashes(object.Annotations, v1alpha1.HashAnnotation); err != nil {
		return nil, err
	}
	if p.blank, err = hashes(object.Annotations, v1alpha1.HashWithoutImageAnnotation); err != nil {
		return nil, err
	}
	p.active = map[string]string{}
	if text := object.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &p.active); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", v1alpha1.WorkingHotUpgradeContainerAnnotation, err)
		}
	}
	return p, nil
}

func hashes(annotations map[string]string, key string) (map[string]string, error) {
	found, text := map[string]string{}, annotations[key]
	if text == "" {
		return found, nil
	}
	entries := map[string]struct {
		Hash string `json:"hash"`
	}{}
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", key, err)
	}
	for set, entry := range entries {
		found[set] = entry.Hash
	}
	return found, nil
}

// live reports whether a pod is neither terminating nor ended (SPEC §3).
func (p *pod) live() bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func (p *pod) ready() bool { return p.Status.Phase == corev1.PodRunning && Ready(p.Pod) }

// readySince returns the time of the last change of the Ready condition. This time is from the clock of the
// kubelet.
func (p *pod) readySince() time.Time { return readyCondition(p.Pod).LastTransitionTime.Time }

// crashes reports whether a container of the pod, except the sidecars, crashes in a loop.
func (p *pod) crashes() bool {
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; !isInjected(c) && crashLoops(statusOf(p.Pod, c.Name)) {
			return true
		}
	}
	return false
}

func crashLoops(status *corev1.ContainerStatus) bool {
	return status.State.Waiting != nil && status.State.Waiting.Reason == "CrashLoopBackOff"
}

func (p *pod) image(container string) string { return imageOf(p.Pod, container) }

// serving returns the name of the container that serves for a sidecar. If the sidecar is hot, this container is
// the active twin.
func (p *pod) serving(s sidecar) string {
	if s.empty == "" {
		return s.name
	}
	return p.active[s.name]
}

// runs reports whether a container runs the image of its spec.
func (p *pod) runs(container string) bool {
	status := statusOf(p.Pod, container)
	return status.ImageID != "" && status.Image == p.image(container)
}

// injected reports whether the annotations and the containers of the pod show that the SidecarSet
// was injected.
func (p *pod) injected(v *version) bool {
	if !slices.Contains(strings.Split(p.Annotations[v1alpha1.InjectedListAnnotation], ","), v.name) {
		return false
	}
	for _, s := range v.sidecars {
		for _, container := range s.containers() {
			if p.image(container) == "" {
				return false
			}
		}
		if s.empty != "" && p.active[s.name] == "" {
			return false
		}
	}
	return true
}

// matched reports whether a pod is a matched pod of a SidecarSet (SPEC §3).
func (p *pod) matched(v *version) bool {
	return p.live() && v.selector.Matches(labels.Set(p.Labels)) && p.injected(v)
}

// converged reports whether the sidecars run the images of the spec of the pod, and whether the standby twins
// have the empty image.
func (p *pod) converged(v *version) bool {
	for _, s := range v.sidecars {
		for _, container := range s.containers() {
			if !p.runs(container) {
				return false
			}
		}
		if s.empty != "" && p.image(s.standby(p)) != s.empty {
			return false
		}
	}
	return true
}

func (p *pod) note(e event) {
	line := fmt.Sprintf("%s rv=%s", e.seen.Format(clockFormat), p.ResourceVersion)
	if e.deleted {
		line += " gone"
	}
	if p.DeletionTimestamp != nil {
		line += " terminating"
	}
	line += fmt.Sprintf(" ready=%t since %s", p.ready(), p.readySince().UTC().Format(time.TimeOnly))
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		status := statusOf(p.Pod, c.Name)
		runs := cmp.Or(status.Image, "-")
		if status.State.Waiting != nil {
			runs += "!" + status.State.Waiting.Reason
		}
		if runs == c.Image {
			line += " " + c.Image
		} else {
			line += fmt.Sprintf(" %s(runs %s)", c.Image, runs)
		}
	}
	p.history = append(p.history, line)
	p.history = p.history[max(0, len(p.history)-historyLength):]
}

func (p *pod) key() string { return p.Namespace + "/" + p.Name }

// containers and statuses also return init containers, because a native sidecar is an init container.
func containers(pod *corev1.Pod) iter.Seq[*corev1.Container] {
	return each(pod.Spec.InitContainers, pod.Spec.Containers)
}

func statuses(pod *corev1.Pod) iter.Seq[*corev1.ContainerStatus] {
	return each(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

func each[T any](lists ...[]T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, list := range lists {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// imageOf returns the image of a container in the spec, or an empty string.
func imageOf(pod *corev1.Pod, name string) string {
	for c := range containers(pod) {
		if c.Name == name {
			return c.Image
		}
	}
	return ""
}

// statusOf returns the status of a container. If the kubelet has not reported a status, the status is empty.
func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for status := range statuses(pod) {
		if status.Name == name {
			return status
		}
	}
	return &corev1.ContainerStatus{}
}

func readyCondition(pod *corev1.Pod) corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return *c
		}
	}
	return corev1.PodCondition{}
}

// Ready reports whether the condition Ready of a pod is True.
func Ready(pod *corev1.Pod) bool { return readyCondition(pod).Status == corev1.ConditionTrue }
