package view

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
)

// unknownRevision is what pods hold that say nothing about it.
const unknownRevision = "unknown"

// history knows the revisions of a set.
type history struct {
	current string
	byName  map[string]*appsv1.ControllerRevision
	byHash  map[string]string
}

func newHistory(set *v1alpha1.SidecarSet, sorted []*appsv1.ControllerRevision) history {
	h := history{current: currentRevision(set, sorted), byName: map[string]*appsv1.ControllerRevision{}, byHash: map[string]string{}}
	for _, one := range sorted {
		h.byName[one.Name] = one
		h.byHash[one.Annotations[v1alpha1.HashAnnotation]] = one.Name
	}
	return h
}

// currentRevision is the one that holds the set's content; its name is derived where it
// is not registered yet.
func currentRevision(set *v1alpha1.SidecarSet, sorted []*appsv1.ControllerRevision) string {
	if data, err := revision.Content(&set.Spec); err == nil {
		if found := revision.Find(sorted, data); found != nil {
			return found.Name
		}
	}
	name, err := revision.Current(set)
	if err != nil {
		return unknownRevision
	}
	return name
}

// held names the revision of a pod's entry.
func (h *history) held(entry record.Entry) string {
	switch {
	case entry.ControllerRevision != "":
		return entry.ControllerRevision
	case h.byHash[entry.Hash] != "":
		return h.byHash[entry.Hash]
	}
	return unknownRevision
}

func (h *history) describe(name string) *Revision {
	described := &Revision{Name: name, Current: name == h.current}
	if found := h.byName[name]; found != nil {
		described.Number = found.Revision
		described.Images = recordedImages(found)
	}
	return described
}

// recordedImages is empty for content that cannot be read.
func recordedImages(recorded *appsv1.ControllerRevision) []Image {
	var spec v1alpha1.SidecarSetSpec
	if err := revision.Restore(recorded.Data.Raw, &spec); err != nil {
		return nil
	}
	return images(&spec)
}
