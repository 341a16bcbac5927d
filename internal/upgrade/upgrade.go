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
	// Revision names the version's ControllerRevision.
	Revision string
	// SetVersion is the set's resourceVersion, the version of upgraded twins.
	SetVersion string
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
	InitContainers []patchContainer `json:"initContainers,omitempty"`
	Containers     []patchContainer `json:"containers,omitempty"`
}

type patchContainer struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// Patch returns the strategic merge patch that upgrades a pod in one write: new
// images for cold and native sidecars, and for the standby twins of hot ones. The
// pod must be upgradable: it differs from the target in images alone. Init
// containers that end keep theirs (SPEC §9.1).
func Patch(pod *corev1.Pod, target Target, now metav1.Time) ([]byte, error) {
	annotations, err := inject.PatchMetadata(pod.Annotations, target.Metadata)
	if err != nil {
		return nil, about(pod, err)
	}
	w := newWrite(pod, annotations)
	if err := w.noteAvailability(target.Version); err != nil {
		return nil, about(pod, err)
	}
	if err := w.keepPending(target.Set); err != nil {
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
	return w.encode(target.Set, target.Hash, now)
}

func about(pod *corev1.Pod, err error) error {
	return fmt.Errorf("upgrade pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// write collects what one write changes.
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

// noteAvailability records a fact that cannot be seen later: that it was not
// this upgrade, nor one before, that made the pod unavailable (SPEC §7.5).
func (w *write) noteAvailability(version *podstate.Version) error {
	state, err := version.Of(w.pod)
	if err != nil {
		return err
	}
	var since *metav1.Time
	if !state.Available(w.pod) {
		since = new(podstate.ReadyTransition(w.pod))
	}
	value, changed, err := record.WithUnavailableSince(w.pod.Annotations, version.Set, since)
	if changed {
		w.annotations[v1alpha1.UnavailableSinceAnnotation] = value
	}
	return err
}

// keepPending takes over from the record what the kubelet has not taken of the upgrade
// before: this one may change other containers.
func (w *write) keepPending(set string) error {
	states, err := record.InPlaceStates(w.pod.Annotations)
	if err != nil {
		return err
	}
	maps.Copy(w.before, podstate.Pending(w.pod, states[set]))
	return nil
}

// setImage changes a container's image and notes what it ran before. One that
// the kubelet did not report yet has not restarted.
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
	before := record.ContainerStatus{RestartCount: new(int32(0))}
	if status := podstate.Status(w.pod, name, native); status != nil {
		before = record.ContainerStatus{ImageID: status.ImageID, RestartCount: new(status.RestartCount)}
	}
	w.before[name] = before
}

// encode adds the record of the change and renders the patch.
func (w *write) encode(set, revision string, now metav1.Time) ([]byte, error) {
	var err error
	w.annotations[v1alpha1.InPlaceUpdateStateAnnotation], err = record.With(w.pod.Annotations, v1alpha1.InPlaceUpdateStateAnnotation,
		record.States{set: {Revision: revision, UpdateTimestamp: now, LastContainerStatuses: w.before}})
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
