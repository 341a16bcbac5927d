// Package upgrade says what an in-place upgrade writes into a pod: images and
// annotations, nothing else (SPEC §7.6).
package upgrade

import (
	"encoding/json"
	"fmt"

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
	// Revision names the version's ControllerRevision.
	Revision string
	// Metadata is written along with the images.
	Metadata []v1alpha1.SidecarSetPatchPodMetadata
}

// patch is a strategic merge patch of a pod. UID and resourceVersion make the
// API server refuse it for any other pod, or any other state of this one.
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
	Containers []patchContainer `json:"containers,omitempty"`
}

type patchContainer struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// Cold returns the strategic merge patch that upgrades a pod in one write. The
// pod must be upgradable: it differs from the target in images alone.
func Cold(pod *corev1.Pod, target Target, now metav1.Time) ([]byte, error) {
	images, before := changedImages(pod, target.Version)
	annotations, err := inject.PatchMetadata(pod.Annotations, target.Metadata)
	if err != nil {
		return nil, fmt.Errorf("upgrade pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	if err := recordUpgrade(annotations, pod, target, before, now); err != nil {
		return nil, fmt.Errorf("upgrade pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	encoded, err := json.Marshal(patch{
		Metadata: patchMetadata{UID: string(pod.UID), ResourceVersion: pod.ResourceVersion, Annotations: annotations},
		Spec:     patchSpec{Containers: images},
	})
	if err != nil {
		return nil, fmt.Errorf("upgrade pod %s/%s: encode patch: %w", pod.Namespace, pod.Name, err)
	}
	return encoded, nil
}

// changedImages lists the containers that get another image, and what they
// ran before.
func changedImages(pod *corev1.Pod, version *podstate.Version) ([]patchContainer, map[string]record.ContainerStatus) {
	var images []patchContainer
	before := map[string]record.ContainerStatus{}
	for _, sidecar := range version.Sidecars {
		if sidecar.Hot() || sidecar.Native {
			continue
		}
		container := podstate.Container(pod, sidecar.Name, false)
		if container == nil || container.Image == sidecar.Image {
			continue
		}
		images = append(images, patchContainer{Name: sidecar.Name, Image: sidecar.Image})
		before[sidecar.Name] = statusBefore(podstate.Status(pod, sidecar.Name, false))
	}
	return images, before
}

func statusBefore(status *corev1.ContainerStatus) record.ContainerStatus {
	if status == nil {
		return record.ContainerStatus{}
	}
	restarts := status.RestartCount
	return record.ContainerStatus{ImageID: status.ImageID, RestartCount: &restarts}
}

func recordUpgrade(annotations map[string]string, pod *corev1.Pod, target Target, before map[string]record.ContainerStatus, now metav1.Time) error {
	hash, err := record.With(pod.Annotations, v1alpha1.HashAnnotation, record.Entries{target.Set: {
		UpdateTimestamp:    now,
		Hash:               target.Hash,
		SidecarSetName:     target.Set,
		SidecarList:        target.Names(),
		ControllerRevision: target.Revision,
	}})
	if err != nil {
		return err
	}
	state, err := record.With(pod.Annotations, v1alpha1.InPlaceUpdateStateAnnotation, record.States{target.Set: {
		Revision:              target.Hash,
		UpdateTimestamp:       now,
		LastContainerStatuses: before,
	}})
	if err != nil {
		return err
	}
	annotations[v1alpha1.HashAnnotation] = hash
	annotations[v1alpha1.InPlaceUpdateStateAnnotation] = state
	return nil
}
