package podstate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
)

// Resize is the change of the resources of one container of a pod.
type Resize struct {
	Name string
	// Native is set if the container is a native sidecar.
	Native bool
	// Requests and Limits contain only the amounts of CPU and memory that change.
	Requests, Limits corev1.ResourceList
}

// Resizable reports whether the content with the hash hashWithoutImage differs from the version only in images
// and amounts of CPU and memory (SPEC §7.9).
func (v *Version) Resizable(hashWithoutImage string) bool {
	return slices.Contains(v.ResizableHashes, hashWithoutImage) && slices.Contains(v.ResizableHashes, v.HashWithoutImage)
}

// Resizes returns the changes that give the sidecars of a pod the resources of the version. Amounts that the
// version does not contain do not change, because another component added these amounts.
func (v *Version) Resizes(pod *corev1.Pod) []Resize {
	var resizes []Resize
	for _, sidecar := range v.Sidecars {
		for _, name := range sidecar.InPod() {
			container := Container(pod, name, sidecar.Native)
			if container == nil {
				continue
			}
			resize := Resize{
				Name: name, Native: sidecar.Native,
				Requests: differing(sidecar.Resources.Requests, container.Resources.Requests),
				Limits:   differing(sidecar.Resources.Limits, container.Resources.Limits),
			}
			if resize.Requests == nil && resize.Limits == nil {
				continue
			}
			resizes = append(resizes, resize)
		}
	}
	return resizes
}

// differing returns the amounts of CPU and memory in wanted that differ from the amounts in present, or nil. A
// missing amount differs.
func differing(wanted, present corev1.ResourceList) (changes corev1.ResourceList) {
	for _, name := range revision.ResizableResources() {
		want, wanted := wanted[name]
		if have, ok := present[name]; !wanted || ok && want.Cmp(have) == 0 {
			continue
		}
		if changes == nil {
			changes = corev1.ResourceList{}
		}
		changes[name] = want
	}
	return changes
}

// notResizable returns the reason why Kubernetes cannot resize a pod to the version, or "". The result
// is also "" if the pod needs no resize.
func (v *Version) notResizable(pod *corev1.Pod) string {
	resizes := v.Resizes(pod)
	if len(resizes) == 0 {
		return ""
	}
	// No kubelet has accepted a pod without a start time yet, so the pod starts with the new resources.
	if pod.Status.ObservedGeneration == 0 && pod.Status.StartTime != nil {
		return "the kubelet of the pod does not report which resize it has observed (Kubernetes 1.34 and newer)"
	}
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.State.Running != nil && status.Resources == nil {
			return "the kubelet of the pod does not resize containers"
		}
	}
	if Windows(pod) {
		return "Kubernetes does not resize pods of Windows"
	}
	if pod.Spec.Resources != nil && len(pod.Spec.Resources.Requests)+len(pod.Spec.Resources.Limits) > 0 {
		return "the pod has resources of its own in spec.resources"
	}
	before, after := qosClass(pod), qosClass(resized(pod, resizes))
	if pod.Status.QOSClass != "" {
		before = pod.Status.QOSClass
	}
	if before != after {
		return fmt.Sprintf("the QoS class of the pod would change from %s to %s", before, after)
	}
	return ""
}

// Windows reports whether a pod runs on Windows nodes. Windows also reads the node selector, because spec.os is
// optional.
func Windows(pod *corev1.Pod) bool {
	return pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows || pod.Spec.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows)
}

// resized returns a pod with a copy of the spec of pod, in which the containers have the resources of resizes.
func resized(pod *corev1.Pod, resizes []Resize) *corev1.Pod {
	changed := &corev1.Pod{Spec: *pod.Spec.DeepCopy()}
	for _, resize := range resizes {
		resources := &Container(changed, resize.Name, resize.Native).Resources
		resources.Requests = merged(resources.Requests, resize.Requests)
		resources.Limits = merged(resources.Limits, resize.Limits)
	}
	return changed
}

func merged(list, changes corev1.ResourceList) corev1.ResourceList {
	for name, amount := range changes {
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = amount
	}
	return list
}

// qosClass returns the QoS class that the API server assigns to a pod with these containers.
func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	bestEffort, guaranteed := true, true
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, name := range revision.ResizableResources() {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			if !request.IsZero() || !limit.IsZero() {
				bestEffort = false
			}
			if limit.IsZero() || request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case bestEffort:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// restartsNothing reports whether no container restarts in the upgrade of a pod to the version: all images stay
// the same, and no resize restarts a sidecar. The result is false for a version with a hot sidecar.
func (v *Version) restartsNothing(pod *corev1.Pod) bool {
	for _, sidecar := range v.Sidecars {
		if sidecar.Hot() {
			return false
		}
		if c := Container(pod, sidecar.Name, sidecar.Native); c == nil || c.Image != sidecar.Image {
			return false
		}
	}
	return !v.mayRestart(pod)
}

// NeedsResize reports whether the upgrade of a pod may resize the pod: the last resize is unfinished, or the
// content of the pod differs from the version in more than images. read is the record of the pod. If NeedsResize
// returns false, any difference in resources was made by another component.
func (v *Version) NeedsResize(read *record.Record) bool {
	return unfinishedResize(read, v.Set) || !v.Reaches(read.HashesWithoutImage[v.Set].Hash)
}

// unfinishedResize reports whether the resize of a pod to other content has begun, and the upgrade to this
// content has not been written.
func unfinishedResize(read *record.Record, set string) bool {
	hash, begun := read.Resizes[set]
	return begun && hash != read.Hashes[set].Hash
}

// ResizeWait returns the reason why the resize of a pod is not complete: the type and the reason of a resize
// condition, or that the kubelet has not observed the resize. The result is empty if no resize is in progress, or
// if the record of the pod cannot be parsed.
func (v *Version) ResizeWait(pod *corev1.Pod) string {
	read, err := record.Read(pod.Annotations)
	if err != nil {
		return ""
	}
	return v.resizeWait(pod, read)
}

func (v *Version) resizeWait(pod *corev1.Pod, read *record.Record) string {
	if _, resized := read.Resizes[v.Set]; !resized {
		return ""
	}
	return resizeInProgress(pod)
}

// resizeInProgress returns the reason why the last resize of a pod is not complete, or "".
func resizeInProgress(pod *corev1.Pod) string {
	for _, kind := range []corev1.PodConditionType{corev1.PodResizePending, corev1.PodResizeInProgress} {
		condition := Condition(pod, kind)
		switch {
		case condition == nil || condition.Status != corev1.ConditionTrue:
		case condition.Reason != "":
			return fmt.Sprintf("%s: %s", kind, condition.Reason)
		default:
			return string(kind)
		}
	}
	if !observedGeneration(pod) {
		return "the kubelet has not observed the resize"
	}
	return ""
}

// ResizeObstacle returns the reason why a pod that differs from the version in amounts of CPU and
// memory cannot be resized. The result is empty for all other pods.
func (v *Version) ResizeObstacle(pod *corev1.Pod) string {
	read, err := record.Read(pod.Annotations)
	if err != nil {
		return ""
	}
	if hash := read.HashesWithoutImage[v.Set].Hash; v.Reaches(hash) || !v.Resizable(hash) {
		return ""
	}
	return v.notResizable(pod)
}

// judgeResources sets the fields of the state that depend on the resources of the pod.
func (v *Version) judgeResources(state *State, pod *corev1.Pod, read *record.Record) {
	hash, unfinished := read.HashesWithoutImage[v.Set].Hash, unfinishedResize(read, v.Set)
	state.Resizing = v.resizeWait(pod, read) != ""
	// A resize that restarts a container makes the pod unready before the upgrade is written.
	state.ResizeRestarts = (state.Resizing || unfinished && !Ready(pod)) && v.mayRestart(pod)
	if !v.NeedsResize(read) {
		state.Upgradable = true
		return
	}
	if v.Reaches(hash) || v.Resizable(hash) {
		state.Upgradable = v.notResizable(pod) == ""
		state.RestartsNothing = state.Upgradable && !state.Updated && v.restartsNothing(pod)
	}
}

// mayRestart reports whether a resize may restart a sidecar of a pod.
func (v *Version) mayRestart(pod *corev1.Pod) bool {
	for _, sidecar := range v.Sidecars {
		for _, name := range sidecar.InPod() {
			if MayRestart(Container(pod, name, sidecar.Native)) {
				return true
			}
		}
	}
	return false
}

// MayRestart reports whether a resize may restart a container. c may be nil.
func MayRestart(c *corev1.Container) bool {
	return c != nil && slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer })
}

// ResizeRestarts reports whether the kubelet still has to restart a container for a resize: for a resource with
// the restartPolicy RestartContainer, the amounts in the spec and in the status differ. A status without
// resources differs from every spec.
func ResizeRestarts(c *corev1.Container, status *corev1.ContainerStatus) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
		if p.RestartPolicy != corev1.RestartContainer {
			return false
		}
		if status == nil || status.Resources == nil {
			return true
		}
		request, limit := c.Resources.Requests[p.ResourceName], c.Resources.Limits[p.ResourceName]
		return request.Cmp(status.Resources.Requests[p.ResourceName]) != 0 || limit.Cmp(status.Resources.Limits[p.ResourceName]) != 0
	})
}

// ResizeMayRestart reports whether a resize of a pod by any SidecarSet is in progress, and may restart a sidecar
// of this SidecarSet. The kubelet never begins an infeasible resize, and may begin a deferred resize at any time.
// The result is false if the record of the pod cannot be parsed.
func ResizeMayRestart(pod *corev1.Pod) bool {
	if pod.Annotations[v1alpha1.ResizeAnnotation] == "" || resizeInProgress(pod) == "" {
		return false
	}
	read, err := record.Read(pod.Annotations)
	if err != nil {
		return false
	}
	pending := Condition(pod, corev1.PodResizePending)
	if True(pod, corev1.PodResizePending) && pending.Reason == corev1.PodReasonInfeasible && !True(pod, corev1.PodResizeInProgress) {
		return false
	}
	for set := range read.Resizes {
		for _, name := range read.Hashes[set].SidecarList {
			if MayRestart(Container(pod, name, false)) || MayRestart(Container(pod, name, true)) {
				return true
			}
		}
	}
	return false
}
