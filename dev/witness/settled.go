package witness

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// asked is a container whose image was changed, with its previous image and status. The
// kubelet restarts it for any change, also for another name of the same image.
type asked struct {
	image, imageID string
	restarts       int32
}

// stillAsked returns the containers that have not restarted since their image was changed.
func (w *Witness) stillAsked(before observed, pod *corev1.Pod) map[string]asked {
	if before.Pod == nil {
		return nil
	}
	still, now := maps.Clone(before.asked), statusesByName(pod)
	was, ran := w.imagesByName(before.Pod), statusesByName(before.Pod)
	for name, image := range w.imagesByName(pod) {
		if was[name] != image && ran[name].ImageID != "" {
			if _, known := still[name]; !known {
				if still == nil {
					still = map[string]asked{}
				}
				still[name] = asked{was[name], ran[name].ImageID, ran[name].RestartCount}
			}
		}
		first, waits := still[name]
		restarted := now[name].ImageID != first.imageID || now[name].RestartCount != first.restarts
		if waits && (restarted || first.image == image) {
			delete(still, name)
		}
	}
	return still
}

// settled reports whether the sidecar's containers run the images of the spec, and one of two
// twins is empty.
func (w *Witness) settled(pod observed) bool {
	runs := statusesByName(pod.Pod)
	for name, image := range w.imagesByName(pod.Pod) {
		if _, waits := pod.asked[name]; waits || plainName(runs[name].Image) != plainName(image) {
			return false
		}
	}
	return w.empty == "" || slices.Contains(w.images(pod.Pod), w.empty)
}

// plainName removes the parts of an image's name that runtimes add or omit.
func plainName(image string) string {
	name, _, _ := strings.Cut(image, "@")
	return strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/")
}

func (w *Witness) imagesByName(pod *corev1.Pod) map[string]string {
	images := map[string]string{}
	for _, list := range containers(pod) {
		for i := range list {
			if slices.Contains(w.names, list[i].Name) {
				images[list[i].Name] = list[i].Image
			}
		}
	}
	return images
}

func statusesByName(pod *corev1.Pod) map[string]corev1.ContainerStatus {
	found := map[string]corev1.ContainerStatus{}
	for _, list := range statuses(pod) {
		for i := range list {
			found[list[i].Name] = list[i]
		}
	}
	return found
}
