package rollout

import (
	"fmt"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// maxImage limits the image in the description of a failure, in bytes. Kubernetes does not limit the length of an
// image.
const maxImage = 512

// BrokenPods are matched pods with a sidecar that cannot start.
type BrokenPods struct {
	Count int
	// UsingSlots is the number of these pods that upgrades made unavailable.
	UsingSlots int
	// Newest is the number of these pods that have the newest content. All other broken pods have older content,
	// which the rollout replaces.
	Newest int
	// Example is the first of these pods by name. Detail describes the failure of this pod, and Reason is the
	// reason for the condition Degraded.
	Reason, Example, Detail string
}

// FindBroken finds the pods with a sidecar that cannot start. The result does not depend on the
// order of the pods.
func FindBroken(version *podstate.Version, pods []Pod) (broken BrokenPods) {
	for i := range pods {
		failed := version.FailedStart(pods[i].Pod)
		if failed == nil {
			continue
		}
		broken.Count++
		if pods[i].Updated {
			broken.Newest++
		}
		if pods[i].UnavailableByUpgrade() {
			broken.UsingSlots++
		}
		if name := pods[i].Reference().String(); broken.Count == 1 || name < broken.Example {
			broken.Reason, broken.Example = startFailureReason(failed.Reason), name
			broken.Detail = fmt.Sprintf("container %s: %s, image %s", failed.Container, failed.Reason, protocol.Shortened(failed.Image, maxImage))
		}
	}
	return broken
}

// startFailureReason returns the reason of the condition Degraded for a reason that the kubelet
// reports.
func startFailureReason(kubelet string) string {
	if kubelet == podstate.ImagePullBackOff {
		return kubelet
	}
	return v1alpha1.ReasonContainerCannotStart
}
