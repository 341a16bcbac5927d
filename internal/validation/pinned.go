package validation

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// ValidatePinned returns an error if injection is pinned to a missing revision (SPEC §5). A pin to the custom
// version of the SidecarSet itself is valid, because the operator records this version later.
func ValidatePinned(set *v1alpha1.SidecarSet, listed []appsv1.ControllerRevision) field.ErrorList {
	name, version := revision.Pin(set)
	if name == "" && version == "" || revision.PinsOwnVersion(set) {
		return nil
	}
	if _, err := revision.FindPinned(set, revision.Of(set, listed)); err == nil {
		return nil
	}
	at := field.NewPath("spec", "injectionStrategy", "revision")
	if name != "" {
		return field.ErrorList{advised(field.NotFound(at.Child("revisionName"), name), "name "+listing(set))}
	}
	return field.ErrorList{advised(field.NotFound(at.Child("customVersion"), version),
		"use the value of label "+v1alpha1.CustomVersionLabel+" of "+listing(set))}
}

func listing(set *v1alpha1.SidecarSet) string {
	return "a ControllerRevision of this SidecarSet: kubectl get controllerrevisions -A -l " + v1alpha1.SidecarSetNameLabel + "=" + set.Name
}
