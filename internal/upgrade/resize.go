package upgrade

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// ResizePatches contains the next write that resizes a pod before the patch of its upgrade (SPEC §7.9). At
// most one of the two patches is not nil. If both patches are nil, the pod needs no resize.
type ResizePatches struct {
	// Begin records in the pod that the resize begins. The record shows an unfinished resize if the upgrade
	// is never completed.
	Begin []byte
	// Resize changes the subresource pods/resize.
	Resize []byte
}

// Resize returns the next write that resizes the containers of a pod for a target.
func Resize(pod *corev1.Pod, target Target) (ResizePatches, error) {
	patches, err := resizePatches(pod, target)
	return patches, about(pod, err)
}

func resizePatches(pod *corev1.Pod, target Target) (patches ResizePatches, err error) {
	read, err := record.Read(pod.Annotations)
	if err != nil || !target.NeedsResize(read) {
		return patches, err
	}
	resizes := target.Resizes(pod)
	switch {
	case len(resizes) == 0:
		return patches, nil
	case read.Resizes[target.Set] != target.Hash && read.Hashes[target.Set].Hash != target.Hash:
		// A pod with the hash of the target has an unfinished resize to other content. The record of this
		// resize stays until the upgrade, because a record with the hash of the target would not show an
		// unfinished resize.
		patches.Begin, err = beginResize(pod, target, read)
		return patches, err
	}
	patches.Resize, err = guarded(pod, nil, resizedContainers(resizes))
	return patches, err
}

// beginResize returns the patch that records the content of the resize, and whether the pod was unavailable
// before the resize (SPEC §7.5).
func beginResize(pod *corev1.Pod, target Target, read *record.Record) ([]byte, error) {
	w := &write{pod: pod, read: read, annotations: map[string]string{}}
	if err := w.recordUnavailable(target.Set, target.OfRecord(pod, read)); err != nil {
		return nil, err
	}
	entry, err := record.With(pod.Annotations, v1alpha1.ResizeAnnotation, map[string]string{target.Set: target.Hash})
	if err != nil {
		return nil, err
	}
	w.annotations[v1alpha1.ResizeAnnotation] = entry
	return guarded[resizedContainer](pod, w.annotations, nil)
}

// resizedContainer sets the resources of a container in a strategic merge patch.
type resizedContainer struct {
	Name      string                      `json:"name"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

func resizedContainers(resizes []podstate.Resize) map[string][]resizedContainer {
	spec := map[string][]resizedContainer{}
	for _, resize := range resizes {
		list := listOf(resize.Native)
		spec[list] = append(spec[list], resizedContainer{resize.Name, corev1.ResourceRequirements{Requests: resize.Requests, Limits: resize.Limits}})
	}
	return spec
}

// listOf returns the name of the list that contains a container in the spec of a pod.
func listOf(native bool) string {
	if native {
		return "initContainers"
	}
	return "containers"
}

// guarded encodes a patch. The patch contains the UID and the resourceVersion, so the API server rejects the
// patch if the pod was recreated or changed.
func guarded[C any](pod *corev1.Pod, annotations map[string]string, spec map[string][]C) ([]byte, error) {
	metadata := map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	patch := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return encoded, nil
}
