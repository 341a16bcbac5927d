package revision

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// ErrNoSuchRevision is a pin to a revision that is not there.
var ErrNoSuchRevision = errors.New("it does not exist; correct spec.injectionStrategy.revision, or create that version again")

// Pin returns what injection is pinned to: the name of a revision or, without one,
// a custom version. Both are empty when neither is given.
func Pin(set *v1alpha1.SidecarSet) (name, version string) {
	pin := set.Spec.InjectionStrategy.Revision
	switch {
	case pin == nil:
		return "", ""
	case pin.RevisionName != nil && *pin.RevisionName != "":
		return *pin.RevisionName, ""
	case pin.CustomVersion != nil:
		return "", *pin.CustomVersion
	}
	return "", ""
}

// FindPinned returns the revision that injection is pinned to, among the set's
// sorted revisions: by name, or the newest with the custom version (SPEC §4.11).
// A missing one is an error, and so is a set without a pin.
func FindPinned(set *v1alpha1.SidecarSet, sorted []*appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	name, version := Pin(set)
	if name != "" {
		for _, candidate := range sorted {
			if candidate.Name == name {
				return candidate, nil
			}
		}
		return nil, fmt.Errorf("SidecarSet %s: inject revision %s: %w", set.Name, name, ErrNoSuchRevision)
	}
	if version != "" {
		for _, candidate := range slices.Backward(sorted) {
			if HasCustomVersion(candidate, version) {
				return candidate, nil
			}
		}
		if found, err := aboutToCarry(set, sorted, version); found != nil || err != nil {
			return found, err
		}
	}
	return nil, fmt.Errorf("SidecarSet %s: inject custom version %q: %w", set.Name, version, ErrNoSuchRevision)
}

// aboutToCarry returns the revision of the set's present content, if that has
// been given the custom version, and the revision will be.
func aboutToCarry(set *v1alpha1.SidecarSet, sorted []*appsv1.ControllerRevision, version string) (*appsv1.ControllerRevision, error) {
	if CustomVersion(set) != version {
		return nil, nil
	}
	data, err := Content(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	return Find(sorted, data), nil
}

// CustomVersions are those that a revision's content was given, the first one first.
func CustomVersions(recorded *appsv1.ControllerRevision) []string {
	var all []string
	if first := recorded.Labels[v1alpha1.CustomVersionLabel]; first != "" {
		all = append(all, first)
	}
	if others := recorded.Annotations[v1alpha1.CustomVersionsAnnotation]; others != "" {
		all = append(all, strings.Split(others, ",")...)
	}
	return all
}

// HasCustomVersion reports whether a revision's content was ever given the version.
func HasCustomVersion(recorded *appsv1.ControllerRevision, version string) bool {
	return version != "" && slices.Contains(CustomVersions(recorded), version)
}

// addCustomVersion keeps those that a revision has: the first in its label.
func addCustomVersion(on *appsv1.ControllerRevision, version string) {
	if version == "" || HasCustomVersion(on, version) {
		return
	}
	if on.Labels[v1alpha1.CustomVersionLabel] == "" {
		on.Labels = with(on.Labels, v1alpha1.CustomVersionLabel, version)
		return
	}
	if others := on.Annotations[v1alpha1.CustomVersionsAnnotation]; others != "" {
		version = others + "," + version
	}
	on.Annotations = with(on.Annotations, v1alpha1.CustomVersionsAnnotation, version)
}

// Of returns those of the listed revisions that are the set's, sorted. One that
// a controller of another kind made is not. Those of an earlier set of the same
// name are: pods that were made from them are matched again.
func Of(set *v1alpha1.SidecarSet, listed []appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	var own []*appsv1.ControllerRevision
	for i := range listed {
		if Belongs(&listed[i], set) {
			own = append(own, &listed[i])
		}
	}
	Sort(own)
	return own
}

// Belongs reports whether a revision is the set's.
func Belongs(recorded *appsv1.ControllerRevision, set *v1alpha1.SidecarSet) bool {
	if recorded.Labels[v1alpha1.SidecarSetNameLabel] != set.Name {
		return false
	}
	controller := metav1.GetControllerOfNoCopy(recorded)
	return controller == nil || controller.Kind == OwnerKind && controller.Name == set.Name
}
