// Package upgrade computes the patches of an in-place upgrade of a pod. The patches change only images and
// annotations (SPEC §7.6), and amounts of CPU and memory (SPEC §7.9).
package upgrade

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// Target is a version that pods are upgraded to.
type Target struct {
	*podstate.Version
	// Revision is the name of the ControllerRevision.
	Revision string
	// SetVersion is the resourceVersion of the SidecarSet. An upgrade records SetVersion as the version of the
	// upgraded twins.
	SetVersion string
	// Metadata contains the annotations that are written together with the images.
	Metadata []v1alpha1.SidecarSetPatchPodMetadata
}

// patchContainer sets the image of a container in a strategic merge patch.
type patchContainer struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// Patch returns the strategic merge patch that upgrades a pod in one write. The patch sets new images for cold
// and native sidecars, and for the standby twins of hot sidecars. The pod may differ from the target only in
// images, or must have been resized to the target. Ordinary init containers keep their images (SPEC §9.1).
// Patch returns an error if an annotation of the pod cannot be parsed.
func Patch(pod *corev1.Pod, target Target, now metav1.Time) ([]byte, error) {
	patch, err := upgradeOf(pod, target, now)
	return patch, about(pod, err)
}

// immutable reports whether the API server rejects a change of an annotation of an existing pod: the
// annotations of AppArmor, and the annotation of mirror pods.
func immutable(annotation string) bool {
	return annotation == corev1.MirrorPodAnnotationKey || strings.HasPrefix(annotation, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
}

func upgradeOf(pod *corev1.Pod, target Target, now metav1.Time) ([]byte, error) {
	annotations, err := inject.PatchMetadata(pod.Annotations, target.Metadata)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(annotations, func(key, _ string) bool { return immutable(key) })
	w, err := newWrite(pod, target.Version, annotations)
	if err != nil {
		return nil, err
	}
	if err := w.recordState(target.Version); err != nil {
		return nil, err
	}
	for _, sidecar := range target.Sidecars {
		if !sidecar.Hot() {
			w.setImage(sidecar.Name, sidecar.Image, sidecar.Native)
		} else if err := w.switchTwins(sidecar, target.SetVersion); err != nil {
			return nil, err
		}
	}
	entry := record.Entry{
		UpdateTimestamp: now, Hash: target.Hash, SidecarSetName: target.Set, SidecarList: target.Names(), ControllerRevision: target.Revision,
	}
	if err := w.setEntry(v1alpha1.HashAnnotation, entry); err != nil {
		return nil, err
	}
	// If an earlier release recorded the hash without images, or if the pod was resized, the upgrade
	// replaces this hash. All other upgradable pods already have the hash of the target.
	if recorded := w.read.HashesWithoutImage[target.Set].Hash; target.RecordedBefore(recorded) || recorded != target.HashWithoutImage && target.Resizable(recorded) {
		entry.Hash, entry.ControllerRevision = target.HashWithoutImage, ""
		if err := w.setEntry(v1alpha1.HashWithoutImageAnnotation, entry); err != nil {
			return nil, err
		}
	}
	if err := w.recordResize(target); err != nil {
		return nil, err
	}
	return w.encode(target.Set, record.State{Revision: target.Hash, SidecarSetVersion: target.SetVersion}, now)
}

// recordResize writes the hash of the target into the record of a resize. If this upgrade resizes no
// container, and no earlier resize of the pod is in progress, recordResize removes the record, because an
// upgrade is not the cause of a later resize.
func (w *write) recordResize(target Target) (err error) {
	hash, resized := w.read.Resizes[target.Set]
	switch {
	case !resized:
	case hash == target.Hash || target.OfRecord(w.pod, w.read).Resizing:
		w.annotations[v1alpha1.ResizeAnnotation], err = record.With(w.pod.Annotations, v1alpha1.ResizeAnnotation, map[string]string{target.Set: target.Hash})
	default:
		w.annotations[v1alpha1.ResizeAnnotation], err = record.WithoutResize(w.read, target.Set)
	}
	return err
}

func about(pod *corev1.Pod, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("upgrade pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// write collects the changes to a pod that one patch contains.
type write struct {
	pod *corev1.Pod
	// read is the record of the pod, with the twins that this write makes active.
	read        *record.Record
	annotations map[string]string
	// images maps the name of a list in the spec of the pod to the changed containers of this
	// list.
	images map[string][]patchContainer
	// before contains the status of each changed container before the change. pending contains the changes of the
	// previous upgrade that the kubelet has not observed.
	before, pending map[string]record.ContainerStatus
	// resizing is set if a resize of the pod by the SidecarSet is in progress.
	resizing bool
}

func newWrite(pod *corev1.Pod, version *podstate.Version, annotations map[string]string) (*write, error) {
	read, err := record.Read(pod.Annotations)
	return &write{pod: pod, read: read, annotations: annotations, images: map[string][]patchContainer{}, before: map[string]record.ContainerStatus{}, resizing: version.ResizeWait(pod) != ""}, err
}

func (w *write) setEntry(key string, entry record.Entry) (err error) {
	w.annotations[key], err = record.With(w.pod.Annotations, key, record.Entries{entry.SidecarSetName: entry})
	return err
}

// recordState records the state before the upgrade. The pending changes of the previous upgrade are kept,
// because this upgrade may change other containers. Pending changes to content whose rollout has ended are
// not kept.
func (w *write) recordState(version *podstate.Version) error {
	state := version.OfRecord(w.pod, w.read)
	w.pending = podstate.Pending(w.pod, w.read.States[version.Set])
	if !state.RolloutEnded {
		maps.Copy(w.before, w.pending)
	}
	return w.recordUnavailable(version.Set, state)
}

// recordUnavailable records whether the pod was unavailable before this write (SPEC §7.5).
func (w *write) recordUnavailable(set string, state podstate.State) error {
	var since *metav1.Time
	if !state.Available(w.pod) {
		since = new(podstate.ReadyTransition(w.pod))
	}
	value, changed, err := record.WithUnavailableSince(w.pod.Annotations, set, since)
	if changed {
		w.annotations[v1alpha1.UnavailableSinceAnnotation] = value
	}
	return err
}

// setImage changes the image of a container and records the status of the container before the change.
func (w *write) setImage(name, image string, native bool) {
	container := podstate.Container(w.pod, name, native)
	if container == nil || container.Image == image {
		return
	}
	list := listOf(native)
	w.images[list] = append(w.images[list], patchContainer{Name: name, Image: image})
	w.before[name] = w.beforeChange(container, podstate.Status(w.pod, name, native))
}

// beforeChange returns the status of a container before the change. Without a status, the restart count is 0,
// because the kubelet has not started the container yet. If an earlier upgrade of the container is pending, the
// image is the image before the earlier upgrade, because the kubelet has not started the container since.
func (w *write) beforeChange(container *corev1.Container, status *corev1.ContainerStatus) record.ContainerStatus {
	before := record.ContainerStatus{RestartCount: new(int32(0)), Image: container.Image}
	if pending, ok := w.pending[container.Name]; ok {
		before.Image = pending.Image
	}
	if status != nil {
		before.ImageID, before.RestartCount = status.ImageID, new(status.RestartCount)
		before.StartFailure, _ = podstate.Stopped(status)
	}
	before.Resizing = w.resizing && podstate.ResizeRestarts(container, status)
	return before
}

// encode adds the in-place state and encodes the patch.
func (w *write) encode(set string, state record.State, now metav1.Time) (encoded []byte, err error) {
	const key = v1alpha1.InPlaceUpdateStateAnnotation
	state.UpdateTimestamp, state.LastContainerStatuses = now, w.before
	if w.annotations[key], err = record.With(w.pod.Annotations, key, record.States{set: state}); err != nil {
		return nil, err
	}
	return guarded(w.pod, w.annotations, w.images)
}
