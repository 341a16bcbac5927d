package witness

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Update is when a pod was asked to run the expected image, or served with it.
type Update struct {
	At time.Time
	// Labels are the pod's.
	Labels map[string]string
}

// Updates are those of pods since the last Expect, in the order in which they were seen.
// Asked are pods that ran something else before.
func (w *Witness) Updates() (asked, served []Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.askedAt), slices.Clone(w.servedAt)
}

// recordUpdate notes what has changed since a pod was observed before, if it was.
func (w *Witness) recordUpdate(before, pod *corev1.Pod, at time.Time) {
	if !w.updated(pod) {
		return
	}
	update := Update{At: at, Labels: maps.Clone(pod.Labels)}
	if before != nil && !w.updated(before) {
		w.askedAt = append(w.askedAt, update)
	}
	if w.serves(pod) && (before == nil || !w.updated(before) || !w.serves(before)) {
		w.servedAt = append(w.servedAt, update)
	}
}

// updated reports whether a pod is asked to run the expected image.
func (w *Witness) updated(pod *corev1.Pod) bool { return slices.Contains(w.images(pod), w.image) }

// serves reports whether a pod is ready with what it is asked to run.
func (w *Witness) serves(pod *corev1.Pod) bool { return w.settled(pod) && Ready(pod) }
