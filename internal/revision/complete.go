package revision

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
)

// Complete writes defaults and hashes into a SidecarSet. stored is the stored SidecarSet, or nil at creation.
// Containers and volumes that the write does not change keep their stored form, even if newer defaults are
// missing. Otherwise, an edit of other fields would create another version.
func Complete(set, stored *v1alpha1.SidecarSet) error {
	keep, err := keepsVersion(set, stored)
	if err != nil {
		return fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	defaults.Write(set)
	if keep {
		from := stored.DeepCopy()
		set.Spec.Containers, set.Spec.InitContainers, set.Spec.Volumes = from.Spec.Containers, from.Spec.InitContainers, from.Spec.Volumes
	}
	return WriteHashes(set)
}

// keepsVersion reports whether the stored hash matches the stored content, and set has the containers, init
// containers and volumes of stored.
func keepsVersion(set, stored *v1alpha1.SidecarSet) (bool, error) {
	if stored == nil || differ(set.Spec.Containers, stored.Spec.Containers) ||
		differ(set.Spec.InitContainers, stored.Spec.InitContainers) || differ(set.Spec.Volumes, stored.Spec.Volumes) {
		return false, nil
	}
	hash, err := Hash(&stored.Spec)
	return hash == stored.Annotations[v1alpha1.HashAnnotation], err
}

// Completed returns a SidecarSet with the hashes of its content. If no webhook was called for the
// last write, the hashes are missing or outdated, and defaults are missing. In this case,
// Completed returns a copy with the defaults and hashes that admission would write. Content that
// matches its hash keeps its form. Completed does not change its argument.
func Completed(set *v1alpha1.SidecarSet) (*v1alpha1.SidecarSet, error) {
	hash, blank, err := hashes(set)
	if err != nil {
		return nil, err
	}
	asHashed := hash == set.Annotations[v1alpha1.HashAnnotation]
	if asHashed && blank == set.Annotations[v1alpha1.HashWithoutImageAnnotation] {
		return set, nil
	}
	completed := set.DeepCopy()
	if !asHashed {
		defaults.Write(completed)
	}
	return completed, WriteHashes(completed)
}

// HaveOwnHashes reports whether a SidecarSet has the hashes of its completed form.
func HaveOwnHashes(set, completed *v1alpha1.SidecarSet) bool {
	return set.Annotations[v1alpha1.HashAnnotation] == completed.Annotations[v1alpha1.HashAnnotation] &&
		set.Annotations[v1alpha1.HashWithoutImageAnnotation] == completed.Annotations[v1alpha1.HashWithoutImageAnnotation]
}

func hashes(set *v1alpha1.SidecarSet) (hash, withoutImage string, err error) {
	if hash, err = Hash(&set.Spec); err == nil {
		withoutImage, err = HashWithoutImage(&set.Spec)
	}
	if err != nil {
		return "", "", fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	return hash, withoutImage, nil
}

func differ[T any](a, b T) bool { return !equality.Semantic.DeepEqual(a, b) }

// WriteHashes writes both hashes of a defaulted SidecarSet into its annotations (SPEC §2).
func WriteHashes(set *v1alpha1.SidecarSet) error {
	hash, blank, err := hashes(set)
	if err != nil {
		return err
	}
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	set.Annotations[v1alpha1.HashAnnotation] = hash
	set.Annotations[v1alpha1.HashWithoutImageAnnotation] = blank
	return nil
}
