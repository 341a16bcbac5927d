// Package upgrade computes the patch of an in-place upgrade of a pod: images and
// annotations, nothing else (SPEC §7.6).
package upgrade

import (
	"encoding/json"
	"fmt"
	"maps"

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
	// SetVersion is the resourceVersion of the SidecarSet, the version of upgraded twins.
	SetVersion string
	// Metadata is patched with the images.
	Metadata []v1alpha1.SidecarSetPatchPodMetadata
}

// patch is a strategic merge patch of a pod. Because of UID and resourceVersion, the API
// server rejects it for any other pod or any other state of the pod.
type patch struct {
	Metadata patchMetadata `json:"metadata"`
	Spec     patchSpec     `json:"spec,omitzero"`
}

type patchMetadata struct {
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations"`
}

type patchSpec struct {
	InitContainers []patchContainer `json:"initContainers,omitempty"`
	Containers     []patchContainer `json:"containers,omitempty"`
}

type patchContainer struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// Patch returns the strategic merge patch that upgrades a pod in one write: new images for
// cold and native sidecars, and for the standby twins of hot sidecars. The pod must differ
// from the target in nothing but images. Ordinary init containers keep their images (SPEC
// §9.1).
func Patch(pod *corev1.Pod, target Target, now metav1.Time) ([]byte, error) {
	annotations, err := inject.PatchMetadata(pod.Annotations, target.Metadata)
	if err != nil {
		return nil, about(pod, err)
	}
	w := newWrite(pod, annotations)
	if err := w.recordState(target.Version); err != nil {
		return nil, about(pod, err)
	}
	for _, sidecar := range target.Sidecars {
		if !sidecar.Hot() {
			w.setImage(sidecar.Name, sidecar.Image, sidecar.Native)
		} else if err := w.switchTwins(sidecar, target.SetVersion); err != nil {
			return nil, about(pod, err)
		}
	}
	w.annotations[v1alpha1.HashAnnotation], err = record.With(pod.Annotations, v1alpha1.HashAnnotation, record.Entries{target.Set: {
		UpdateTimestamp:    now,
		Hash:               target.Hash,
		SidecarSetName:     target.Set,
		SidecarList:        target.Names(),
		ControllerRevision: target.Revision,
	}})
	if err != nil {
		return nil, about(pod, err)
	}
	if err := w.renewHashWithoutImage(target, now); err != nil {
		return nil, about(pod, err)
	}
	return w.encode(target.Set, record.State{Revision: target.Hash, SidecarSetVersion: target.SetVersion}, now)
}

// renewHashWithoutImage replaces the hash of an earlier release. All other upgradable pods
// hold the hash of the target.
func (w *write) renewHashWithoutImage(target Target, now metav1.Time) error {
	recorded, err := record.HashesWithoutImage(w.pod.Annotations)
	if err != nil || !target.HeldBefore(recorded[target.Set].Hash) {
		return err
	}
	w.annotations[v1alpha1.HashWithoutImageAnnotation], err = record.With(w.pod.Annotations, v1alpha1.HashWithoutImageAnnotation, record.Entries{target.Set: {
		UpdateTimestamp: now, Hash: target.HashWithoutImage, SidecarSetName: target.Set, SidecarList: target.Names(),
	}})
	return err
}

func about(pod *corev1.Pod, err error) error {
	return fmt.Errorf("upgrade pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// write collects the changes of one write.
type write struct {
	pod         *corev1.Pod
	annotations map[string]string
	images      patchSpec
	before      map[string]record.ContainerStatus
}

func newWrite(pod *corev1.Pod, annotations map[string]string) *write {
	if annotations == nil {
		annotations = map[string]string{}
	}
	return &write{pod: pod, annotations: annotations, before: map[string]record.ContainerStatus{}}
}

// recordState records the state before the upgrade: whether the pod was unavailable (SPEC
// §7.5), and the pending changes of the previous upgrade, because this upgrade may change
// other containers.
func (w *write) recordState(version *podstate.Version) error {
	read, err := record.Read(w.pod.Annotations)
	if err != nil {
		return err
	}
	state := version.OfRecord(w.pod, read)
	var since *metav1.Time
	if !state.Available(w.pod) {
		since = new(podstate.ReadyTransition(w.pod))
	}
	value, changed, err := record.WithUnavailableSince(w.pod.Annotations, version.Set, since)
	if changed {
		w.annotations[v1alpha1.UnavailableSinceAnnotation] = value
	}
	if !state.RolloutEnded {
		maps.Copy(w.before, podstate.Pending(w.pod, read.States[version.Set]))
	}
	return err
}

// setImage changes the image of a container and records its status before the change. A
// container that the kubelet has not reported yet has not restarted.
func (w *write) setImage(name, image string, native bool) {
	container := podstate.Container(w.pod, name, native)
	if container == nil || container.Image == image {
		return
	}
	list := &w.images.Containers
	if native {
		list = &w.images.InitContainers
	}
	*list = append(*list, patchContainer{Name: name, Image: image})
	w.before[name] = w.beforeChange(container, podstate.Status(w.pod, name, native))
}

// beforeChange returns the status of a container before the change. The kubelet has not
// started it with the image of a pending upgrade.
func (w *write) beforeChange(container *corev1.Container, status *corev1.ContainerStatus) record.ContainerStatus {
	before := record.ContainerStatus{RestartCount: new(int32(0)), Image: container.Image}
	if pending, ok := w.before[container.Name]; ok {
		before.Image = pending.Image
	}
	if status != nil {
		before.ImageID, before.RestartCount = status.ImageID, new(status.RestartCount)
	}
	return before
}

// encode adds the in-place state and encodes the patch.
func (w *write) encode(set string, state record.State, now metav1.Time) ([]byte, error) {
	state.UpdateTimestamp, state.LastContainerStatuses = now, w.before
	var err error
	w.annotations[v1alpha1.InPlaceUpdateStateAnnotation], err = record.With(w.pod.Annotations, v1alpha1.InPlaceUpdateStateAnnotation,
		record.States{set: state})
	if err != nil {
		return nil, about(w.pod, err)
	}
	encoded, err := json.Marshal(patch{
		Metadata: patchMetadata{UID: string(w.pod.UID), ResourceVersion: w.pod.ResourceVersion, Annotations: w.annotations},
		Spec:     w.images,
	})
	if err != nil {
		return nil, about(w.pod, fmt.Errorf("encode patch: %w", err))
	}
	return encoded, nil
}
