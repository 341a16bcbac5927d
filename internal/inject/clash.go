package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/outrigger/outrigger/internal/defaults"
)

// claimNames adds the container names of the SidecarSets to injectedBy. A name that the pod would
// have twice is an error. Two SidecarSets with the same name of a container may have been
// accepted at the same time, or under older rules. Without claimNames, the API server would
// reject the pod without the names of the SidecarSets, or one SidecarSet would replace a
// container of another SidecarSet.
func claimNames(injectedBy map[string]string, pod *corev1.Pod, sets []*Set) error {
	for _, set := range sets {
		if name, taken := inCommon(set.names, pod.Spec.InitContainers); taken {
			return SetError{set.Name, fmt.Errorf("SidecarSet %s: container %s: the pod has an init container of this name; rename one of them", set.Name, name)}
		}
		if name, taken := inCommon(set.initNames, pod.Spec.Containers); taken {
			return SetError{set.Name, fmt.Errorf("SidecarSet %s: init container %s: the pod has a container of this name; rename one of them", set.Name, name)}
		}
		for _, names := range [][]string{set.names, set.initNames} {
			for _, name := range names {
				if other, taken := injectedBy[name]; taken && other != set.Name {
					return SetError{set.Name, fmt.Errorf("SidecarSet %s: container %s: SidecarSet %s injects a container of this name, too; rename it or narrow spec.selector",
						set.Name, name, other)}
				}
				injectedBy[name] = set.Name
			}
		}
	}
	return nil
}

func inCommon(names []string, containers []corev1.Container) (string, bool) {
	for i := range containers {
		if slices.Contains(names, containers[i].Name) {
			return containers[i].Name, true
		}
	}
	return "", false
}

// sameVolume compares volumes after it has written their defaults, as validation does. A
// SidecarSet may have been stored before a default existed.
func sameVolume(a, b *corev1.Volume) bool {
	if equality.Semantic.DeepEqual(a, b) {
		return true
	}
	a, b = a.DeepCopy(), b.DeepCopy()
	defaults.Volume(a)
	defaults.Volume(b)
	return equality.Semantic.DeepEqual(a, b)
}
