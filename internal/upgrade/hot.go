package upgrade

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/hotupgrade"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// emptyVersion is the version of a twin that holds the empty image.
const emptyVersion = "0"

// switchTwins puts the new image into the idle twin and lets that one work
// (SPEC §7.7, upgrade). Nothing changes when the working twin has the image.
func (w *write) switchTwins(sidecar podstate.Sidecar, setVersion string) error {
	working, err := record.WorkingContainers(w.pod.Annotations)
	if err != nil {
		return err
	}
	if c := podstate.Container(w.pod, working[sidecar.Name], false); c != nil && c.Image == sidecar.Image {
		return nil
	}
	idle := hotupgrade.Idle(w.pod, sidecar)
	old := sidecar.Twin(idle)
	w.setImage(idle, sidecar.Image)
	if err := w.setWorking(sidecar.Name, idle); err != nil {
		return err
	}
	w.annotations[v1alpha1.VersionAnnotationPrefix+idle] = setVersion
	w.annotations[v1alpha1.VersionAltAnnotationPrefix+old] = setVersion
	w.annotations[v1alpha1.VersionAltAnnotationPrefix+idle] = w.pod.Annotations[v1alpha1.VersionAnnotationPrefix+old]
	return nil
}

// setWorking names the working twin of one sidecar beside those of the others,
// also of such that this write has switched before.
func (w *write) setWorking(sidecar, twin string) error {
	const key = v1alpha1.WorkingHotUpgradeContainerAnnotation
	annotations := w.pod.Annotations
	if written, ok := w.annotations[key]; ok {
		annotations = map[string]string{key: written}
	}
	all, err := record.WorkingContainers(annotations)
	if err != nil {
		return err
	}
	all = maps.Clone(all)
	all[sidecar] = twin
	w.annotations[key], err = record.Format(all)
	return err
}

// Reset returns the patch that empties the old twins of a migrated pod (SPEC
// §7.7, reset). It advances no hash: the record keeps the revision that the
// pod was upgraded to.
func Reset(pod *corev1.Pod, version *podstate.Version, now metav1.Time) ([]byte, error) {
	old, err := version.OldTwins(pod)
	if err != nil {
		return nil, about(pod, err)
	}
	states, err := record.InPlaceStates(pod.Annotations)
	if err != nil {
		return nil, about(pod, err)
	}
	w := newWrite(pod, nil)
	for _, twin := range old {
		w.setImage(twin.Container, twin.EmptyImage)
		w.annotations[v1alpha1.VersionAnnotationPrefix+twin.Container] = emptyVersion
		w.annotations[v1alpha1.VersionAltAnnotationPrefix+twin.Twin(twin.Container)] = emptyVersion
	}
	return w.encode(version.Set, states[version.Set].Revision, now)
}
