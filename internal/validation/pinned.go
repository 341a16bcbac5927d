package validation

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// ValidatePinned returns an error when injection is pinned to none of the
// set's revisions (SPEC §5). A custom version that the set itself carries is
// about to be recorded.
func ValidatePinned(set *v1alpha1.SidecarSet, revisions []appsv1.ControllerRevision) field.ErrorList {
	pinned := set.Spec.InjectionStrategy.Revision
	if pinned == nil {
		return nil
	}
	at := field.NewPath("spec", "injectionStrategy", "revision")
	if name := named(pinned.RevisionName); name != "" {
		for i := range revisions {
			if revisions[i].Name == name {
				return nil
			}
		}
		return field.ErrorList{field.NotFound(at.Child("revisionName"), name)}
	}
	version := named(pinned.CustomVersion)
	if version == "" || version == set.Labels[v1alpha1.CustomVersionLabel] {
		return nil
	}
	for i := range revisions {
		if revisions[i].Labels[v1alpha1.CustomVersionLabel] == version {
			return nil
		}
	}
	return field.ErrorList{field.NotFound(at.Child("customVersion"), version)}
}
