package view

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// unknownRevision is the revision of pods whose record names none.
const unknownRevision = "unknown"

// revisions are the recorded revisions of a SidecarSet.
type revisions struct {
	set     string
	current string
	byName  map[string]*appsv1.ControllerRevision
	byHash  map[string]string
}

func (in *Input) revisions() revisions {
	r := revisions{set: in.Set.Name, current: in.currentRevision(), byName: map[string]*appsv1.ControllerRevision{}, byHash: map[string]string{}}
	for _, one := range in.Revisions {
		r.byName[one.Name] = one
		if hash := one.Annotations[v1alpha1.HashAnnotation]; hash != "" {
			r.byHash[hash] = one.Name
		}
	}
	return r
}

// currentRevision is the revision with the content of the SidecarSet. Its name is derived if
// the operator has not recorded it yet.
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

// of returns the name of a pod's revision.
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

// whyNotInPlace names the fields that prevent the upgrade in place of a pod.
func (r *revisions) whyNotInPlace(pod *corev1.Pod, to *v1alpha1.SidecarSetSpec) string {
	const cannot = "cannot be upgraded in place"
	recorded := r.byName[r.of(pod)]
	if recorded == nil {
		return cannot + "; its revision is not recorded any more, so the changed field is not known"
	}
	var from v1alpha1.SidecarSetSpec
	if err := revision.Restore(recorded.Data.Raw, &from); err != nil {
		return cannot + "; " + err.Error()
	}
	fields := ChangedFields(&from, to)
	if len(fields) == 0 {
		return cannot + ": its hash without images differs"
	}
	return cannot + ": " + strings.Join(fields, ", ")
}

// recordedImages is empty for content that cannot be read.
func recordedImages(recorded *appsv1.ControllerRevision) []Image {
	var spec v1alpha1.SidecarSetSpec
	if err := revision.Restore(recorded.Data.Raw, &spec); err != nil {
		return nil
	}
	return images(&spec)
}
