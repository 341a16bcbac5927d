package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// claimNames adds the container names of the SidecarSets to injectedBy, and returns an error if two containers
// of the pod would have the same name. Admission may have accepted two SidecarSets with the same container name
// at the same time, or under older rules. Without the error, a container of one SidecarSet would replace a
// container of another SidecarSet, or the API server would reject the pod with a message that names no
// SidecarSet.
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
