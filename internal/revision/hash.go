// Package revision computes and compares the versions of a SidecarSet. Each version has two hashes, and a
// ControllerRevision that records the content (SPEC §2, §6).
package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
)

// Hash returns the hash of the containers of a defaulted spec (SPEC §2). The hash covers the init containers
// if at least one init container is a native sidecar.
func Hash(spec *v1alpha1.SidecarSetSpec) (string, error) {
	return hashOf(spec.Containers, spec.InitContainers)
}

// HashWithoutImage returns the hash of a spec with empty images. Two specs with the same HashWithoutImage
// differ only in images, so an in-place upgrade is possible.
func HashWithoutImage(spec *v1alpha1.SidecarSetSpec) (string, error) {
	return hashOf(withoutImages(spec.Containers), withoutImages(spec.InitContainers))
}

// FormerHashWithoutImage returns the HashWithoutImage of earlier releases. Earlier releases hashed probes
// with the defaults of pods. The result is empty if the defaults of pods change no probe of the spec.
func FormerHashWithoutImage(spec *v1alpha1.SidecarSetSpec) (string, error) {
	open := func(c v1alpha1.SidecarContainer) bool { return defaults.HasPodProbes(&c.Container) }
	if !slices.ContainsFunc(spec.Containers, open) && !slices.ContainsFunc(spec.InitContainers, open) {
		return "", nil
	}
	return hashOf(withoutImages(defaults.PodProbes(spec.Containers)), withoutImages(defaults.PodProbes(spec.InitContainers)))
}

// IsNativeSidecar reports whether an init container runs concurrently with the app.
func IsNativeSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// hashOf returns the hash of containers and, if at least one init container is a native sidecar, of
// initContainers. An empty list has the hash of a missing list, because the stored form omits empty lists.
func hashOf(containers, initContainers []v1alpha1.SidecarContainer) (string, error) {
	if len(containers) == 0 {
		containers = nil
	}
	content := map[string]any{"containers": containers}
	for i := range initContainers {
		if IsNativeSidecar(&initContainers[i].Container) {
			content["initContainers"] = initContainers
			break
		}
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encode sidecar containers for hashing: %w", err)
	}
	sum := sha256.Sum256(encoded)
	return rand.SafeEncodeString(hex.EncodeToString(sum[:])), nil
}

func withoutImages(containers []v1alpha1.SidecarContainer) []v1alpha1.SidecarContainer {
	if containers == nil {
		return nil
	}
	blanked := make([]v1alpha1.SidecarContainer, len(containers))
	for i := range containers {
		blanked[i] = containers[i]
		blanked[i].Image = ""
	}
	return blanked
}
