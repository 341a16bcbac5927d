package validation

import (
	"fmt"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// Complete writes defaults and hashes into a SidecarSet. stored is what it was
// before, nil at its creation. Containers and volumes that nobody changed stay as
// they were hashed, under whatever rules: a set that is only paused must not get
// another version.
func Complete(set, stored *v1alpha1.SidecarSet) error {
	keep, err := keepsVersion(set, stored)
	if err != nil {
		return fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	Default(set)
	if keep {
		from := stored.DeepCopy()
		set.Spec.Containers, set.Spec.InitContainers, set.Spec.Volumes = from.Spec.Containers, from.Spec.InitContainers, from.Spec.Volumes
	}
	return WriteHashes(set)
}

// keepsVersion reports whether the hash that is stored is that of what is stored,
// and nothing of this is changed.
func keepsVersion(set, stored *v1alpha1.SidecarSet) (bool, error) {
	if stored == nil || differ(set.Spec.Containers, stored.Spec.Containers) ||
		differ(set.Spec.InitContainers, stored.Spec.InitContainers) || differ(set.Spec.Volumes, stored.Spec.Volumes) {
		return false, nil
	}
	hash, err := revision.Hash(&stored.Spec)
	return hash == stored.Annotations[v1alpha1.HashAnnotation], err
}
