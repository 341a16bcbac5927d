package podstate

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/record"
)

// containerChange is a container that an upgrade changed, with its status before the change
// and now.
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
	// The records of OpenKruise have no restart count, so times are compared instead. Only this
	// comparison and startedBefore use the clocks of two machines.
	return c.runsImage() || c.status.State.Running != nil && c.status.State.Running.StartedAt.After(c.patched)
}

// restarted reports whether a changed restart count shows that the kubelet has observed the change. The count
// may also be lower, because a recreated node may have lost the count.
func (c *containerChange) restarted() bool {
	mayBeResize := c.before.Resizing && c.status.RestartCount == *c.before.RestartCount+1
	return !mayBeResize || c.imageChanged() || c.runsImage()
}

// runsImage reports whether the container runs the image of the spec. For a container that existed before the
// change, the image does not prove a restart, because the kubelet also restarts the container if the new
// string names the same image.
func (c *containerChange) runsImage() bool {
	return canonicalImage(c.status.Image) == canonicalImage(c.container.Image) || sameDigest(c.status.ImageID, c.container.Image)
}

// reverted reports whether the container has the image string from before the change again, so that nothing
// restarts the container.
func (c *containerChange) reverted() bool {
	return c.before.Image != "" && c.before.Image == c.container.Image
}

// startedBefore reports whether the container started before the change. The records of OpenKruise have no
// image.
func (c *containerChange) startedBefore() bool {
	running := c.status.State.Running
	return c.before.Image != "" && running != nil && running.StartedAt.Before(new(metav1.NewTime(c.patched)))
}

// imageChanged reports whether the container runs another image than before the change. Digests are compared
// if both image IDs have a digest, because the runtime may name an image by any repository of the image. If
// the image is also pulled from another repository, the name may change without a restart.
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

// StartFailure reports whether a container cannot start without a change, and the reason of the kubelet. The
// kubelet alternates between the reasons ErrImagePull and ImagePullBackOff for an image that cannot be
// pulled. StartFailure returns ImagePullBackOff for both reasons.
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

// Stopped reports whether a container cannot start, or has ended and was not started again. The reason is the
// reason of the kubelet, or Terminated.
func Stopped(status *corev1.ContainerStatus) (reason string, stopped bool) {
	if status != nil && status.State.Terminated != nil {
		return terminated, true
	}
	return StartFailure(status)
}

// observedGeneration reports whether the kubelet has observed the spec of a pod. Kubelets before Kubernetes
// 1.34 do not report the generation, and count as up to date.
func observedGeneration(pod *corev1.Pod) bool {
	return pod.Status.ObservedGeneration == 0 || pod.Status.ObservedGeneration >= pod.Generation
}

// terminated is the reason of a container that has ended and that the kubelet has not started again. The
// kubelet reports no other reason for a native sidecar that ended with exit code 0, although the kubelet
// retries the start.
const terminated = "Terminated"

// pullLimit is in the message of a kubelet that delays a pull because of its own limit (registryPullQPS), for
// example because many pods of the node are upgraded at the same time.
const pullLimit = "pull QPS exceeded"

// ImagePullBackOff is the reason of a container whose image cannot be pulled.
const ImagePullBackOff = "ImagePullBackOff"

// invalidImageName is the reason of a container whose image is not a valid reference.
const invalidImageName = "InvalidImageName"

// crashLoopBackOff is the reason of a container that is restarted after a backoff.
const crashLoopBackOff = "CrashLoopBackOff"

// FailedStart is a sidecar's container that the kubelet cannot start.
type FailedStart struct {
	Container string
	// Reason is the reason of the kubelet.
	Reason string
	// Image is the image in the spec. The kubelet may still report the previous image.
	Image string
	// Before reports that the failure may be the failure of the content before the upgrade: the kubelet may
	// not have tried to start the new content yet, for example while the kubelet pulls the new image.
	Before bool
}

// FailedStart returns the first container of the version that cannot start, or nil. A container with a failure
// that existed before the last upgrade is returned only if no other container fails. Both twins of a hot sidecar
// are checked. A container is skipped if only the content before the upgrade is known to fail.
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

// cannotStart reports whether a container that Stopped reports with a reason cannot start. existed is set if the
// failure may be the failure of the content before an upgrade that the kubelet has not observed.
func (v *Version) cannotStart(pod *corev1.Pod, status *corev1.ContainerStatus, reason string) (failed, existed bool) {
	pending := v.pending(pod, status.Name)
	if pending == nil {
		return reason != terminated, false // A container without an upgrade may have ended for good.
	}
	same := reason == pending.StartFailure
	switch reason {
	case crashLoopBackOff:
		return false, false
	case ImagePullBackOff:
		// Not every runtime names the image that cannot be pulled.
		return true, same && quotedAfter(status.State.Waiting.Message, `image "`) == ""
	case terminated:
		// The kubelet may also be pulling the new image.
		return observedGeneration(pod), true
	}
	return true, same
}

// pending returns the status of a container before an upgrade that the kubelet has not observed. The result is
// nil if the kubelet has observed the upgrade, or if the record of the pod cannot be parsed.
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
