package podstate

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/policy"
	"github.com/outrigger/outrigger/internal/record"
)

// containerChange is a container that an upgrade changed, and its status before
// the change and now.
type containerChange struct {
	container *corev1.Container
	status    *corev1.ContainerStatus
	before    record.ContainerStatus
	patched   time.Time
}

// takenChain reports whether the kubelet has taken a change (SPEC §7,
// "consistent").
func takenChain() policy.Chain[*containerChange, bool] {
	return policy.Chain[*containerChange, bool]{
		{When: (*containerChange).notCreated, Then: false},
		{When: (*containerChange).runsTheImage, Then: true},
		{When: (*containerChange).restarted, Then: true},
		{When: (*containerChange).imageUnrecorded, Then: false},
		{When: (*containerChange).imageChanged, Then: true},
		{When: (*containerChange).restartsRecorded, Then: false},
		{When: (*containerChange).startedLater, Then: true},
	}
}

// notCreated containers have no imageID: the kubelet then reports the image that
// it was asked for.
func (c *containerChange) notCreated() bool { return c.status == nil || c.status.ImageID == "" }

func (c *containerChange) runsTheImage() bool {
	return canonicalImage(c.status.Image) == canonicalImage(c.container.Image) || sameDigest(c.status.ImageID, c.container.Image)
}

func (c *containerChange) restarted() bool {
	return c.before.RestartCount != nil && c.status.RestartCount > *c.before.RestartCount
}

// imageUnrecorded proves nothing, since any image differs from an empty record.
func (c *containerChange) imageUnrecorded() bool { return c.before.ImageID == "" }

func (c *containerChange) imageChanged() bool { return c.status.ImageID != c.before.ImageID }

func (c *containerChange) restartsRecorded() bool { return c.before.RestartCount != nil }

// startedLater is for the records of OpenKruise, which hold no restart count.
// Here alone a node's clock is compared with another.
func (c *containerChange) startedLater() bool {
	return c.status.State.Running != nil && c.status.State.Running.StartedAt.After(c.patched)
}

func sameDigest(imageID, image string) bool {
	_, have, ok := strings.Cut(imageID, "@")
	_, want, named := strings.Cut(image, "@")
	return ok && named && have == want
}

// canonicalImage writes a short name as runtimes report it: nginx, docker.io/nginx and
// index.docker.io/nginx are docker.io/library/nginx:latest.
func canonicalImage(image string) string {
	image = strings.TrimPrefix(strings.TrimPrefix(image, "index.docker.io/"), "docker.io/")
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
// for an image that it cannot pull; they are reported as one.
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
