package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Hash of the containers of a defaulted spec (SPEC §2). Init containers count
// when at least one of them is a native sidecar.
func Hash(spec *v1alpha1.SidecarSetSpec) (string, error) {
	return hashOf(spec.Containers, spec.InitContainers)
}

// HashWithoutImage is Hash with every image blanked: two specs that share it
// differ in nothing but images, so one can be reached from the other in place.
func HashWithoutImage(spec *v1alpha1.SidecarSetSpec) (string, error) {
	return hashOf(withoutImages(spec.Containers), withoutImages(spec.InitContainers))
}

// IsNativeSidecar reports whether an init container keeps running beside the app.
func IsNativeSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func hashOf(containers, initContainers []v1alpha1.SidecarContainer) (string, error) {
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
