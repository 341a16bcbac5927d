package podstate

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/record"
)

// containerChange is a container that an upgrade changed. before is its status before the change, and status is
// its current status. patched is the time of the change.
type containerChange struct {
	container *corev1.Container
	status    *corev1.ContainerStatus
	before    record.ContainerStatus
	patched   time.Time
}

// observed reports whether the kubelet has observed the change (SPEC §7, "consistent").
func (c *containerChange) observed() bool {
	switch {
	case c.status == nil || c.status.ImageID == "":
		// Before the kubelet creates the container, the status has the requested image, but no image ID.
		return false
	case c.before.RestartCount != nil && c.status.RestartCount != *c.before.RestartCount:
		return c.restarted()
	case c.before.ImageID == "":
		// The kubelet had not reported the container before the change. A container that started before the
		// change may be ready until the kubelet restarts the container with the new image.
		return c.runsImage() || c.status.Ready && (c.reverted() || !c.startedBefore())
	case c.imageChanged():
		return true
	case c.reverted():
		return true
	case c.before.RestartCount != nil:
		return false
	}
	// The records of OpenKruise have no restart count, so times are compared instead. Only this comparison and
	// startedBefore compare times of different clocks.
	return c.runsImage() || c.status.State.Running != nil && c.status.State.Running.StartedAt.After(c.patched)
}

// restarted reports whether a changed restart count shows that the kubelet has observed the change. A count that
// is higher by one may only show the restart by a resize. A lower count also shows a restart, because the count
// may be lost if the node is recreated.
func (c *containerChange) restarted() bool {
	mayBeResize := c.before.Resizing && c.status.RestartCount == *c.before.RestartCount+1
	return !mayBeResize || c.imageChanged() || c.runsImage()
}

// runsImage reports whether the container runs the image of the spec. For a container that existed before the
// change, the image does not prove a restart, because the kubelet also restarts the container if only the image
// string changes, and not the image.
func (c *containerChange) runsImage() bool {
	return canonicalImage(c.status.Image) == canonicalImage(c.container.Image) || sameDigest(c.status.ImageID, c.container.Image)
}

// reverted reports whether the image string in the spec is the same as before the change, so that the kubelet has
// no reason to restart the container.
func (c *containerChange) reverted() bool {
	return c.before.Image != "" && c.before.Image == c.container.Image
}

// startedBefore reports whether the container started before the change. The result is false for a record of
// OpenKruise, because OpenKruise does not record the image string.
func (c *containerChange) startedBefore() bool {
	running := c.status.State.Running
	return c.before.Image != "" && running != nil && running.StartedAt.Before(new(metav1.NewTime(c.patched)))
}

// imageChanged reports whether the container runs a different image than before the change. If both image IDs
// have a digest, only the digests are compared. The runtime may report any repository from which the image was
// pulled, so the repository may change without a restart.
func (c *containerChange) imageChanged() bool {
	_, before, named := strings.Cut(c.before.ImageID, "@")
	_, now, still := strings.Cut(c.status.ImageID, "@")
	switch {
	case named && still:
		return now != before
	case named != still && c.before.RestartCount != nil:
		return false
	}
	return c.status.ImageID != c.before.ImageID
}

func sameDigest(imageID, image string) bool {
	_, have, ok := strings.Cut(imageID, "@")
	_, want, named := strings.Cut(image, "@")
	return ok && named && have == want
}

// canonicalImage expands a short name as container runtimes do. For example, nginx,
// docker.io/nginx and index.docker.io/nginx become docker.io/library/nginx:latest.
func canonicalImage(image string) string {
	image = strings.TrimPrefix(strings.TrimPrefix(image, "index.docker.io/"), "docker.io/")
	if domain, _, found := strings.Cut(image, "/"); !found {
		image = "docker.io/library/" + image
	} else if !strings.ContainsAny(domain, ".:") && domain != "localhost" {
		image = "docker.io/" + image
	}
	repository := strings.LastIndex(image, "/") + 1
	name, digest, pinned := strings.Cut(image[repository:], "@")
	if pinned {
		// A runtime omits the tag of an image with a digest.
		name, _, _ = strings.Cut(name, ":")
		return image[:repository] + name + "@" + digest
	}
	if !strings.Contains(name, ":") {
		image += ":latest"
	}
	return image
}

// StartFailure reports whether a container cannot start, and the reason that the kubelet reports. The kubelet
// alternates between the reasons ErrImagePull and ImagePullBackOff for an image that cannot be pulled.
// StartFailure returns ImagePullBackOff for both reasons.
func StartFailure(status *corev1.ContainerStatus) (reason string, failed bool) {
	if status == nil || status.State.Waiting == nil {
		return "", false
	}
	switch reason := status.State.Waiting.Reason; reason {
	case "", "ContainerCreating", "PodInitializing", "RestartingAllContainers":
		return "", false
	case "ErrImagePull", ImagePullBackOff:
		if strings.Contains(status.State.Waiting.Message, pullLimit) {
			return "", false
		}
		return ImagePullBackOff, true
	default:
		return reason, true
	}
}

// FailedBefore reports whether the image that the kubelet could not pull or parse differs from image, the image
// in the spec of the pod. In this case, the kubelet has not tried the image of the spec yet.
func FailedBefore(status *corev1.ContainerStatus, image string) bool {
	beforeImage := `image "`
	switch reason, _ := StartFailure(status); reason {
	case ImagePullBackOff:
	case invalidImageName:
		beforeImage = `image tag "`
	default:
		return false
	}
	pulled := quotedAfter(status.State.Waiting.Message, beforeImage)
	return pulled != "" && canonicalImage(pulled) != canonicalImage(image)
}

func quotedAfter(message, beforeQuote string) string {
	_, rest, _ := strings.Cut(message, beforeQuote)
	quoted, _, _ := strings.Cut(rest, `"`)
	return quoted
}

// Stopped reports whether a container cannot start, or has terminated and was not restarted. The reason is the
// reason that the kubelet reports for the start failure, or Terminated.
func Stopped(status *corev1.ContainerStatus) (reason string, stopped bool) {
	if status != nil && status.State.Terminated != nil {
		return terminated, true
	}
	return StartFailure(status)
}

// observedGeneration reports whether the kubelet has observed the spec of a pod. Kubelets before Kubernetes 1.34
// do not report the observed generation, so the result is true for their pods.
func observedGeneration(pod *corev1.Pod) bool {
	return pod.Status.ObservedGeneration == 0 || pod.Status.ObservedGeneration >= pod.Generation
}

// terminated is the reason for a container that has ended and that the kubelet has not restarted. For a native
// sidecar that ended with exit code 0, the kubelet reports no waiting reason, although the kubelet retries the
// start.
const terminated = "Terminated"

// pullLimit is part of the message of a waiting container if the kubelet delays a pull because of its own limit
// (registryPullQPS), for example while many pods of the node are upgraded.
const pullLimit = "pull QPS exceeded"

// ImagePullBackOff is the reason of a container whose image cannot be pulled.
const ImagePullBackOff = "ImagePullBackOff"

// invalidImageName is the reason of a container whose image is not a valid reference.
const invalidImageName = "InvalidImageName"

// crashLoopBackOff is the reason of a container that is restarted after a backoff.
const crashLoopBackOff = "CrashLoopBackOff"

// FailedStart describes a container of a sidecar that the kubelet cannot start.
type FailedStart struct {
	Container string
	// Reason is the reason that the kubelet reports, or Terminated.
	Reason string
	// Image is the image in the spec. The kubelet may still report the previous image.
	Image string
	// Before is set if the failure may have existed before the upgrade. In this case, the kubelet may not have
	// tried to start the new content yet, for example because the kubelet still pulls the new image.
	Before bool
}

// FailedStart returns the first container of the version that cannot start, or nil. A container with a failure
// that may have existed before the last upgrade is returned only if no other container fails. Both twins of a hot
// sidecar are checked. FailedStart skips a container if only its content before the upgrade is known to fail.
func (v *Version) FailedStart(pod *corev1.Pod) (before *FailedStart) {
	for _, sidecar := range v.Sidecars {
		for _, name := range sidecar.InPod() {
			status, image := Status(pod, name, sidecar.Native), ""
			if container := Container(pod, name, sidecar.Native); container != nil {
				image = container.Image
			}
			reason, stopped := Stopped(status)
			if !stopped || FailedBefore(status, image) {
				continue
			}
			start := &FailedStart{Container: name, Reason: reason, Image: image}
			switch failed, existed := v.cannotStart(pod, status, reason); {
			case failed && !existed:
				return start
			case failed && before == nil:
				before, start.Before = start, true
			}
		}
	}
	return before
}

// cannotStart reports whether a container cannot start. reason is the reason that Stopped returns for the
// container. existed is set if the failure may have existed before an upgrade that the kubelet has not observed.
func (v *Version) cannotStart(pod *corev1.Pod, status *corev1.ContainerStatus, reason string) (failed, existed bool) {
	pending := v.pending(pod, status.Name)
	if pending == nil {
		return reason != terminated, false // Without a pending upgrade, the container may have completed.
	}
	same := reason == pending.StartFailure
	switch reason {
	case crashLoopBackOff:
		return false, false
	case ImagePullBackOff:
		// Some container runtimes do not name the image that cannot be pulled.
		return true, same && quotedAfter(status.State.Waiting.Message, `image "`) == ""
	case terminated:
		// The container may also be terminated because the kubelet is pulling the new image.
		return observedGeneration(pod), true
	}
	return true, same
}

// pending returns the recorded status of a container before an upgrade that the kubelet has not observed. The
// result is nil if the kubelet has observed the upgrade, or if the record of the pod cannot be parsed.
func (v *Version) pending(pod *corev1.Pod, container string) *record.ContainerStatus {
	states, err := record.InPlaceStates(pod.Annotations)
	if err != nil {
		return nil
	}
	before, pending := Pending(pod, states[v.Set])[container]
	if !pending {
		return nil
	}
	return &before
}

// Blocked reports whether the pod has a container that cannot start and is not a sidecar of the SidecarSet. A
// change of the SidecarSet does not repair such a pod.
func (v *Version) Blocked(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(status corev1.ContainerStatus) bool {
		_, failed := StartFailure(&status)
		return failed && !v.has(status.Name)
	})
}

func (v *Version) has(container string) bool {
	return slices.ContainsFunc(v.Sidecars, func(s Sidecar) bool { return slices.Contains(s.InPod(), container) })
}
