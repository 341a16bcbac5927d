package podstate

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/record"
)

// containerTaken follows SPEC §7, "consistent". Without an imageID a container
// was not created yet: the kubelet then reports the image that it was asked for.
// A record without one proves nothing either, since any image differs from it.
func containerTaken(c *corev1.Container, status *corev1.ContainerStatus, before record.ContainerStatus, patched time.Time) bool {
	if status == nil || status.ImageID == "" {
		return false
	}
	if canonicalImage(status.Image) == canonicalImage(c.Image) || sameDigest(status.ImageID, c.Image) {
		return true
	}
	if before.RestartCount != nil && status.RestartCount > *before.RestartCount {
		return true
	}
	if before.ImageID == "" {
		return false
	}
	if status.ImageID != before.ImageID || before.RestartCount != nil {
		return status.ImageID != before.ImageID
	}
	// OpenKruise records no count. Its records are the one place where a node's
	// clock is compared with another.
	return status.State.Running != nil && status.State.Running.StartedAt.After(patched)
}

func sameDigest(imageID, image string) bool {
	_, have, ok := strings.Cut(imageID, "@")
	_, want, named := strings.Cut(image, "@")
	return ok && named && have == want
}

// canonicalImage writes a short name as runtimes report it: nginx is
// docker.io/library/nginx:latest.
func canonicalImage(image string) string {
	if domain, _, found := strings.Cut(image, "/"); !found {
		image = "docker.io/library/" + image
	} else if !strings.ContainsAny(domain, ".:") && domain != "localhost" {
		image = "docker.io/" + image
	}
	if name := image[strings.LastIndex(image, "/")+1:]; !strings.ContainsAny(name, ":@") {
		image += ":latest"
	}
	return image
}

// StartFailure reports whether the kubelet says of a container that it will not
// come up by waiting alone, and why. The kubelet alternates between two reasons
// for an image that it cannot pull; they are told as one.
func StartFailure(status *corev1.ContainerStatus) (reason string, failed bool) {
	if status == nil || status.State.Waiting == nil {
		return "", false
	}
	switch reason := status.State.Waiting.Reason; reason {
	case "", "ContainerCreating", "PodInitializing":
		return "", false
	case "ErrImagePull", ImagePullBackOff:
		return ImagePullBackOff, true
	default:
		return reason, true
	}
}

// ImagePullBackOff is the reason of a container whose image cannot be pulled.
const ImagePullBackOff = "ImagePullBackOff"
