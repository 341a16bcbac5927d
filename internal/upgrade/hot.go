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
// upgrade). Nothing changes if the active twin has the image.
func (w *write) switchTwins(sidecar podstate.Sidecar, setVersion string) error {
	active, err := record.ActiveContainers(w.pod.Annotations)
	if err != nil {
		return err
	}
	if c := podstate.Container(w.pod, active[sidecar.Name], false); c != nil && c.Image == sidecar.Image {
		return nil
	}
	standby := standbyTwin(w.pod, sidecar)
	replaced := sidecar.Twin(standby)
	w.setImage(standby, sidecar.Image, false)
	if err := w.setActive(sidecar.Name, standby); err != nil {
		return err
	}
	w.annotations[v1alpha1.VersionAnnotationPrefix+standby] = setVersion
	w.annotations[v1alpha1.VersionAltAnnotationPrefix+replaced] = setVersion
	w.annotations[v1alpha1.VersionAltAnnotationPrefix+standby] = w.pod.Annotations[v1alpha1.VersionAnnotationPrefix+replaced]
	return nil
}

// setActive records the active twin of a sidecar. The entries of other sidecars stay, also
// those of this write.
func (w *write) setActive(sidecar, twin string) error {
	const key = v1alpha1.WorkingHotUpgradeContainerAnnotation
	annotations := w.pod.Annotations
	if written, ok := w.annotations[key]; ok {
		annotations = map[string]string{key: written}
	}
	all, err := record.ActiveContainers(annotations)
	if err != nil {
		return err
	}
	all = maps.Clone(all)
	all[sidecar] = twin
	w.annotations[key], err = record.Format(all)
	return err
}

// Reset returns the patch that empties the standby twins of a migrated pod (SPEC §7.7,
// reset). It changes no hash.
func Reset(pod *corev1.Pod, version *podstate.Version, now metav1.Time) ([]byte, error) {
	standby, err := version.StandbysToReset(pod)
	if err != nil {
		return nil, about(pod, err)
	}
	states, err := record.InPlaceStates(pod.Annotations)
	if err != nil {
		return nil, about(pod, err)
	}
	w := newWrite(pod, nil)
	maps.Copy(w.before, podstate.Pending(pod, states[version.Set]))
	for _, twin := range standby {
		w.setImage(twin.Container, twin.EmptyImage, false)
		w.annotations[v1alpha1.VersionAnnotationPrefix+twin.Container] = emptyVersion
		w.annotations[v1alpha1.VersionAltAnnotationPrefix+twin.Twin(twin.Container)] = emptyVersion
	}
	return w.encode(version.Set, states[version.Set], now)
}
