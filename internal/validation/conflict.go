package validation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
)

// ValidateConflicts returns the conflicts of a SidecarSet with other SidecarSets that can match
// the same pods (SPEC §5). others may include the SidecarSet itself. revisions must include the
// revisions to which the injection of all these SidecarSets is pinned.
func ValidateConflicts(set *v1alpha1.SidecarSet, others []v1alpha1.SidecarSet, revisions []appsv1.ControllerRevision) field.ErrorList {
	return validateConflicts(set, others, revisions, false)
}

// validateConflicts implements ValidateConflicts. If all is set, the result contains the conflicts of each
// content. Otherwise, the result contains each conflict once, even if several contents have the conflict.
func validateConflicts(set *v1alpha1.SidecarSet, others []v1alpha1.SidecarSet, revisions []appsv1.ControllerRevision, all bool) field.ErrorList {
	var errs field.ErrorList
	ours := contentsOf(set, revisions)
	for i := range others {
		if others[i].Name == set.Name || !Overlap(&set.Spec, &others[i].Spec) {
			continue
		}
		// The other SidecarSet may have been stored before a default existed.
		theirs := contentsOf(defaulted(&others[i]), revisions)
		reported := map[string]bool{}
		for _, mine := range ours {
			for _, other := range theirs {
				for _, found := range conflicts(mine, other) {
					if all || !reported[found.subject] {
						reported[found.subject] = true
						errs = append(errs, mine.report(found))
					}
				}
			}
		}
	}
	return errs
}

// conflict describes why two contents cannot be injected into the same pod. Each subject is reported once,
// even if several contents of the two SidecarSets conflict about this subject.
type conflict struct {
	subject string
	at      *field.Path
	value   string
	detail  string
}

func conflicts(mine, other content) []conflict {
	return slices.Concat(nameConflicts(mine.spec, other), volumeConflicts(mine.spec.Volumes, other), metadataConflicts(mine.spec, other))
}

// nameConflicts compares containers and init containers together, because their names are
// unique in a pod.
func nameConflicts(spec *v1alpha1.SidecarSetSpec, other content) []conflict {
	taken := map[string]bool{}
	for _, theirs := range [][]v1alpha1.SidecarContainer{other.spec.Containers, other.spec.InitContainers} {
		for i := range theirs {
			taken[theirs[i].Name] = true
			for _, name := range inject.ContainerNames(&theirs[i]) {
				taken[name] = true
			}
		}
	}
	find := func(list []v1alpha1.SidecarContainer, at *field.Path) (found []conflict) {
		for i := range list {
			names := append(inject.ContainerNames(&list[i]), list[i].Name)
			if slices.ContainsFunc(names, func(name string) bool { return taken[name] }) {
				found = append(found, conflict{"container " + list[i].Name, at.Index(i).Child("name"), list[i].Name, fmt.Sprintf(
					"%s injects a container of this name into pods that both can match; rename it or narrow spec.selector", other)})
			}
		}
		return found
	}
	at := field.NewPath("spec")
	return append(find(spec.Containers, at.Child("containers")), find(spec.InitContainers, at.Child("initContainers"))...)
}

func volumeConflicts(volumes []corev1.Volume, other content) []conflict {
	var found []conflict
	theirs := other.spec.Volumes
	for i := range volumes {
		for j := range theirs {
			if volumes[i].Name == theirs[j].Name && differ(volumes[i], theirs[j]) {
				found = append(found, conflict{"volume " + volumes[i].Name, field.NewPath("spec", "volumes").Index(i), volumes[i].Name, fmt.Sprintf(
					"%s has another volume of this name for pods that both can match; rename it or make them equal", other)})
			}
		}
	}
	return found
}

func metadataConflicts(spec *v1alpha1.SidecarSetSpec, other content) []conflict {
	theirs := map[string]annotationPatch{}
	for i := range other.spec.PatchPodMetadata {
		patch := &other.spec.PatchPodMetadata[i]
		for key, value := range patch.Annotations {
			theirs[key] = annotationPatch{patch.PatchPolicy, value}
		}
	}
	var found []conflict
	for i := range spec.PatchPodMetadata {
		patch, at := &spec.PatchPodMetadata[i], field.NewPath("spec", "patchPodMetadata").Index(i)
		for _, key := range slices.Sorted(maps.Keys(patch.Annotations)) {
			their, shared := theirs[key]
			remedy := remedyOf(annotationPatch{patch.PatchPolicy, patch.Annotations[key]}, their)
			if shared && remedy != "" {
				found = append(found, conflict{"annotation " + key, at.Child("annotations").Key(key), string(patch.PatchPolicy), fmt.Sprintf(
					"%s writes this key too, with policy %s; %s", other, their.policy, remedy)})
			}
		}
	}
	return found
}

// annotationPatch is the policy and the value with which one SidecarSet writes an annotation.
type annotationPatch struct {
	policy v1alpha1.SidecarSetPatchPolicyType
	value  string
}

// remedyOf returns the remedy of a conflict of two patches of one key, or "" if the patches do not conflict.
func remedyOf(a, b annotationPatch) string {
	const overwrite, retain = v1alpha1.SidecarSetOverwritePatchPolicy, v1alpha1.SidecarSetRetainPatchPolicy
	switch {
	case a.policy == overwrite && b.policy != retain, b.policy == overwrite && a.policy != retain:
		return "use Retain in one of the two SidecarSets"
	case unmergeable(a, b), unmergeable(b, a):
		return "use a JSON value with Retain, or Retain in both SidecarSets"
	}
	return ""
}

// unmergeable reports whether the value of retained can make the merge of merged fail, so that a pod with both
// SidecarSets is rejected (SPEC §4.9).
func unmergeable(retained, merged annotationPatch) bool {
	return retained.policy == v1alpha1.SidecarSetRetainPatchPolicy && merged.policy == v1alpha1.SidecarSetMergePatchJSONPolicy &&
		!json.Valid([]byte(retained.value))
}
