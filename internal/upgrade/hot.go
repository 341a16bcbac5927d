package upgrade

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// emptyVersion is the version of a twin with the empty image.
const emptyVersion = "0"

// switchTwins sets the new image in the standby twin and makes that twin active (SPEC §7.7,
// upgrade). If the active twin already has the new image, switchTwins changes nothing.
func (w *write) switchTwins(sidecar podstate.Sidecar, setVersion string) (err error) {
	active := w.read.Active[sidecar.Name]
	if c := podstate.Container(w.pod, active, false); c != nil && c.Image == sidecar.Image {
		return nil
	}
	standby := standbyTwin(w.pod, sidecar, active)
	replaced := sidecar.Twin(standby)
	w.setImage(standby, sidecar.Image, false)
	w.read.Active[sidecar.Name] = standby
	w.annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation], err = record.Format(w.read.Active)
	w.annotations[v1alpha1.VersionAnnotationPrefix+standby] = setVersion
	w.annotations[v1alpha1.VersionAltAnnotationPrefix+replaced] = setVersion
	w.annotations[v1alpha1.VersionAltAnnotationPrefix+standby] = w.pod.Annotations[v1alpha1.VersionAnnotationPrefix+replaced]
	return err
}

// Reset returns the patch that empties the standby twins of a migrated pod (SPEC §7.7,
// reset). It changes no hash. It keeps the record of the upgrade, so that crashes of the active twin
// still count.
func Reset(pod *corev1.Pod, version *podstate.Version, now metav1.Time) ([]byte, error) {
	w, err := newWrite(pod, map[string]string{})
	if err != nil {
		return nil, about(pod, err)
	}
	newest := w.read.States[version.Set]
	maps.Copy(w.before, podstate.Pending(pod, newest))
	for _, twin := range version.StandbysToReset(pod, w.read.Active) {
		w.setImage(twin.Container, twin.EmptyImage, false)
		w.annotations[v1alpha1.VersionAnnotationPrefix+twin.Container] = emptyVersion
		w.annotations[v1alpha1.VersionAltAnnotationPrefix+twin.Twin(twin.Container)] = emptyVersion
	}
	w.keepObserved(newest)
	patch, err := w.encode(version.Set, newest, now)
	return patch, about(pod, err)
}

// keepObserved keeps the recorded status of each container whose change the kubelet has observed.
// Without a restart count, the change would not count as observed after the time of this write.
func (w *write) keepObserved(newest record.State) {
	for name, before := range newest.LastContainerStatuses {
		if _, changed := w.before[name]; !changed && before.RestartCount != nil {
			w.before[name] = before
		}
	}
}
