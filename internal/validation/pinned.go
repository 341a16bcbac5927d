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
		return field.ErrorList{advised(field.NotFound(at.Child("revisionName"), name), "name "+listing(set))}
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
	return field.ErrorList{advised(field.NotFound(at.Child("customVersion"), version),
		"use the value of label "+v1alpha1.CustomVersionLabel+" of "+listing(set))}
}

func listing(set *v1alpha1.SidecarSet) string {
	return "a ControllerRevision of this set: kubectl get controllerrevisions -A -l " + v1alpha1.SidecarSetNameLabel + "=" + set.Name
}
