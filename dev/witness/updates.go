package witness

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Update is the time at which a pod got the expected image in its spec, or served with it.
type Update struct {
	At time.Time
	// Labels are the pod's.
	Labels map[string]string
}

// Updates returns the updates since the last Expect, in the order of their events. The pods in
// asked had another image before.
func (w *Witness) Updates() (asked, served []Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.askedAt), slices.Clone(w.servedAt)
}

// recordUpdate records the change from the previous state of a pod, if there is one.
func (w *Witness) recordUpdate(before, now observed, at time.Time) {
	if !w.updated(now.Pod) {
		return
	}
	update := Update{At: at, Labels: maps.Clone(now.Labels)}
	if before.Pod != nil && !w.updated(before.Pod) {
		w.askedAt = append(w.askedAt, update)
	}
	if w.serves(now) && (before.Pod == nil || !w.updated(before.Pod) || !w.serves(before)) {
		w.servedAt = append(w.servedAt, update)
	}
}

// updated reports whether a pod has the expected image in its spec.
func (w *Witness) updated(pod *corev1.Pod) bool { return slices.Contains(w.images(pod), w.image) }

// serves reports whether a pod is ready with the images of its spec.
func (w *Witness) serves(pod observed) bool { return w.settled(pod) && Ready(pod.Pod) }
