package view

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/revision"
)

// unknownRevision is the revision of a pod whose record names no revision.
const unknownRevision = "unknown"

// notInPlace is the beginning of the reason why a pod is not upgraded in place.
const notInPlace = "cannot be upgraded in place"

// revisions contains the recorded revisions of a SidecarSet.
type revisions struct {
	set     string
	current string
	// version is nil if the content of the SidecarSet cannot be compared.
	version *podstate.Version
	byName  map[string]*appsv1.ControllerRevision
	byHash  map[string]string
	// differences caches the difference between each revision and the SidecarSet.
	differences map[string]string
}

func (in *Input) revisions() revisions {
	r := revisions{set: in.Set.Name, current: in.currentRevision(), byName: map[string]*appsv1.ControllerRevision{}, byHash: map[string]string{}, differences: map[string]string{}}
	if version, err := podstate.NewVersion(in.Set); err == nil {
		r.version = version
	}
	for _, one := range in.Revisions {
		r.byName[one.Name] = one
		if hash := one.Annotations[v1alpha1.HashAnnotation]; hash != "" {
			r.byHash[hash] = one.Name
		}
	}
	return r
}

// currentRevision returns the name of the revision with the content of the SidecarSet. If the operator has
// not recorded the revision yet, currentRevision derives the name.
func (in *Input) currentRevision() string {
	if data, err := revision.Content(&in.Set.Spec); err == nil {
		if found := revision.Find(in.Revisions, data); found != nil {
			return found.Name
		}
	}
	name, err := revision.Current(in.Set)
	if err != nil {
		return unknownRevision
	}
	return name
}

// of returns the name of the revision of a pod.
func (r *revisions) of(pod *corev1.Pod) string {
	entry := entryOf(pod, r.set)
	switch {
	case entry.ControllerRevision != "":
		return entry.ControllerRevision
	case r.byHash[entry.Hash] != "":
		return r.byHash[entry.Hash]
	}
	return unknownRevision
}

func (r *revisions) describe(name string) *Revision {
	described := &Revision{Name: name, Current: name == r.current}
	if found := r.byName[name]; found != nil {
		described.Number = found.Revision
		described.Images = recordedImages(found)
	}
	return described
}

// whyNotInPlace returns the reason why a pod cannot be upgraded in place to the spec in to.
func (r *revisions) whyNotInPlace(pod *corev1.Pod, to *v1alpha1.SidecarSetSpec) string {
	if podstate.CountsRestarts(pod) {
		return notInPlace + ": " + countsRestarts
	}
	name := r.of(pod)
	if r.differences[name] == "" {
		r.differences[name] = r.difference(name, to)
	}
	if r.version == nil {
		return r.differences[name]
	}
	if obstacle := r.version.ResizeObstacle(pod); obstacle != "" {
		return r.differences[name] + " (" + obstacle + ")"
	}
	return r.differences[name]
}

func (r *revisions) difference(name string, to *v1alpha1.SidecarSetSpec) string {
	recorded := r.byName[name]
	if recorded == nil {
		return notInPlace + "; its revision is not recorded any more, so the changed field is not known"
	}
	var from v1alpha1.SidecarSetSpec
	if err := revision.Restore(recorded.Data.Raw, &from); err != nil {
		return notInPlace + "; " + err.Error()
	}
	fields := ChangedFields(&from, to)
	if len(fields) == 0 {
		return notInPlace + ": its hash without images differs"
	}
	return notInPlace + ": " + strings.Join(fields, ", ")
}

// recordedImages returns the images in a revision. If the content cannot be read, recordedImages returns nil.
func recordedImages(recorded *appsv1.ControllerRevision) []Image {
	var spec v1alpha1.SidecarSetSpec
	if err := revision.Restore(recorded.Data.Raw, &spec); err != nil {
		return nil
	}
	return images(&spec)
}
