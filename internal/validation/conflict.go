package validation

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
)

// ValidateConflicts returns what a SidecarSet and others that can match the
// same pods disagree about (SPEC §5). The set itself may be among the others.
func ValidateConflicts(set *v1alpha1.SidecarSet, others []v1alpha1.SidecarSet) field.ErrorList {
	var errs field.ErrorList
	for i := range others {
		if others[i].Name == set.Name || !Overlap(&set.Spec, &others[i].Spec) {
			continue
		}
		// It may have been stored before a default was one.
		other := defaulted(&others[i])
		at := field.NewPath("spec")
		errs = append(errs, nameConflicts(set.Spec.Containers, other.Spec.Containers, other.Name, at.Child("containers"))...)
		errs = append(errs, nameConflicts(set.Spec.InitContainers, other.Spec.InitContainers, other.Name, at.Child("initContainers"))...)
		errs = append(errs, volumeConflicts(set.Spec.Volumes, other.Spec.Volumes, other.Name, at.Child("volumes"))...)
		errs = append(errs, metadataConflicts(&set.Spec, &other.Spec, other.Name, at.Child("patchPodMetadata"))...)
	}
	return errs
}

func nameConflicts(containers, theirs []v1alpha1.SidecarContainer, other string, at *field.Path) field.ErrorList {
	taken := map[string]bool{}
	for i := range theirs {
		taken[theirs[i].Name] = true
		for _, name := range inject.ContainerNames(&theirs[i]) {
			taken[name] = true
		}
	}
	var errs field.ErrorList
	for i := range containers {
		names := append(inject.ContainerNames(&containers[i]), containers[i].Name)
		if slices.ContainsFunc(names, func(name string) bool { return taken[name] }) {
			errs = append(errs, field.Invalid(at.Index(i).Child("name"), containers[i].Name, fmt.Sprintf(
				"SidecarSet %s injects a container of this name into pods that both can match; rename it or narrow spec.selector", other)))
		}
	}
	return errs
}

func volumeConflicts(volumes, theirs []corev1.Volume, other string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range volumes {
		for j := range theirs {
			if volumes[i].Name == theirs[j].Name && !equality.Semantic.DeepEqual(volumes[i], theirs[j]) {
				errs = append(errs, field.Invalid(at.Index(i), volumes[i].Name, fmt.Sprintf(
					"SidecarSet %s has another volume of this name for pods that both can match; rename it or make them equal", other)))
			}
		}
	}
	return errs
}

func metadataConflicts(spec, theirs *v1alpha1.SidecarSetSpec, other string, at *field.Path) field.ErrorList {
	policies := map[string]v1alpha1.SidecarSetPatchPolicyType{}
	for i := range theirs.PatchPodMetadata {
		for key := range theirs.PatchPodMetadata[i].Annotations {
			policies[key] = theirs.PatchPodMetadata[i].PatchPolicy
		}
	}
	var errs field.ErrorList
	for i := range spec.PatchPodMetadata {
		patch := &spec.PatchPodMetadata[i]
		for _, key := range slices.Sorted(maps.Keys(patch.Annotations)) {
			if policy, shared := policies[key]; shared && disagree(patch.PatchPolicy, policy) {
				errs = append(errs, field.Invalid(at.Index(i).Child("annotations").Key(key), string(patch.PatchPolicy), fmt.Sprintf(
					"SidecarSet %s writes this key too, with policy %s; use Retain in one of the two", other, policy)))
			}
		}
	}
	return errs
}

// disagree: one overwrites what the other does not leave alone.
func disagree(a, b v1alpha1.SidecarSetPatchPolicyType) bool {
	const overwrite, retain = v1alpha1.SidecarSetOverwritePatchPolicy, v1alpha1.SidecarSetRetainPatchPolicy
	return a == overwrite && b != retain || b == overwrite && a != retain
}
