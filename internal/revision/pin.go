package revision

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// ErrNoSuchRevision is returned if injection is pinned to a missing revision.
var ErrNoSuchRevision = errors.New("it does not exist; correct spec.injectionStrategy.revision, or create that version again")

// Pin returns the name or the custom version of the revision that injection is pinned to. If the spec
// contains a name and a custom version, Pin returns only the name. If injection is not pinned, name and
// version are empty.
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

// CustomVersion returns the custom version of a SidecarSet. If a SidecarSet was stored as v1beta1
// and no webhook converted it, only its spec contains the custom version.
func CustomVersion(set *v1alpha1.SidecarSet) string {
	return cmp.Or(set.Labels[v1alpha1.CustomVersionLabel], set.Spec.CustomVersion)
}

// PinsOwnVersion reports whether injection is pinned to the custom version of the SidecarSet
// itself. While no revision has this custom version, injection uses the current content.
func PinsOwnVersion(set *v1alpha1.SidecarSet) bool {
	name, version := Pin(set)
	return name == "" && version != "" && version == CustomVersion(set)
}

// FindPinned returns the revision that injection is pinned to, among the sorted revisions of the SidecarSet:
// the revision with the name, or the newest revision with the custom version (SPEC §4.11). A revision with the
// custom version as a label takes precedence. If no revision has the custom version of the SidecarSet itself,
// FindPinned returns the revision of the current content. If the revision is missing or injection is not
// pinned, FindPinned returns an error that wraps ErrNoSuchRevision.
func FindPinned(set *v1alpha1.SidecarSet, sorted []*appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	name, version := Pin(set)
	if name != "" {
		if named := Named(sorted, name); named != nil {
			return named, nil
		}
		return nil, fmt.Errorf("SidecarSet %s: inject revision %s: %w", set.Name, name, ErrNoSuchRevision)
	}
	if version != "" {
		if found := newestWith(sorted, version); found != nil {
			return found, nil
		}
		if found, err := willCarry(set, sorted); found != nil || err != nil {
			return found, err
		}
	}
	return nil, fmt.Errorf("SidecarSet %s: inject custom version %q: %w", set.Name, version, ErrNoSuchRevision)
}

// Named returns the revision with the given name, or nil if there is none.
func Named(revisions []*appsv1.ControllerRevision, name string) *appsv1.ControllerRevision {
	for _, candidate := range revisions {
		if candidate.Name == name {
			return candidate
		}
	}
	return nil
}

// newestWith returns the newest revision with a custom version, or nil. A revision with the version in its label
// takes precedence over a revision with the version in an annotation. If a user changes the content of a
// SidecarSet before its label, the operator first labels the new revision with the previous version. The revision
// keeps the previous version in the annotation.
func newestWith(sorted []*appsv1.ControllerRevision, version string) (newest *appsv1.ControllerRevision) {
	for _, candidate := range slices.Backward(sorted) {
		if candidate.Labels[v1alpha1.CustomVersionLabel] == version {
			return candidate
		}
		if newest == nil && HasCustomVersion(candidate, version) {
			newest = candidate
		}
	}
	return newest
}

// willCarry returns the revision of the current content if the SidecarSet itself has the pinned custom version,
// because the operator labels this revision later. The result is nil if no such revision exists, or if the
// SidecarSet has another custom version.
func willCarry(set *v1alpha1.SidecarSet, sorted []*appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	if !PinsOwnVersion(set) {
		return nil, nil
	}
	data, err := Content(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	return Find(sorted, data), nil
}

// CustomVersions returns the custom versions of a revision, the newest last.
func CustomVersions(recorded *appsv1.ControllerRevision) []string {
	all := formerVersions(recorded)
	if newest := recorded.Labels[v1alpha1.CustomVersionLabel]; newest != "" {
		all = append(all, newest)
	}
	return all
}

// formerVersions returns the custom versions of a revision, except the version in its label.
func formerVersions(recorded *appsv1.ControllerRevision) []string {
	if former := recorded.Annotations[v1alpha1.CustomVersionsAnnotation]; former != "" {
		return strings.Split(former, ",")
	}
	return nil
}

// HasCustomVersion reports whether version is one of the custom versions of a revision.
func HasCustomVersion(recorded *appsv1.ControllerRevision, version string) bool {
	return version != "" && slices.Contains(CustomVersions(recorded), version)
}

// addCustomVersion labels a revision with a custom version. The revision keeps its former custom versions in an
// annotation (SPEC 6.4).
func addCustomVersion(on *appsv1.ControllerRevision, version string) {
	label := on.Labels[v1alpha1.CustomVersionLabel]
	if version == "" || version == label {
		return
	}
	on.Labels = with(on.Labels, v1alpha1.CustomVersionLabel, version)
	if label == "" {
		return
	}
	former := slices.DeleteFunc(append(formerVersions(on), label), func(one string) bool { return one == version })
	on.Annotations = with(on.Annotations, v1alpha1.CustomVersionsAnnotation, strings.Join(former, ","))
}

// Of returns the revisions of a SidecarSet among the listed revisions, sorted. Revisions whose controller is
// of another kind are omitted. Revisions of a deleted SidecarSet with the same name are included, because the
// new SidecarSet matches the pods of the deleted SidecarSet again.
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

// Belongs reports whether a revision has the label of a SidecarSet, and the controller of the revision is
// either absent or a SidecarSet with the same name.
func Belongs(recorded *appsv1.ControllerRevision, set *v1alpha1.SidecarSet) bool {
	if recorded.Labels[v1alpha1.SidecarSetNameLabel] != set.Name {
		return false
	}
	controller := metav1.GetControllerOfNoCopy(recorded)
	return controller == nil || controller.Kind == OwnerKind && controller.Name == set.Name
}
