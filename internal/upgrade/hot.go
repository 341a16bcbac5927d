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

// switchTwins sets the new image in the standby twin and makes the standby twin active (SPEC §7.7, upgrade).
// If the active twin already has the new image, switchTwins changes nothing. setVersion is the new version of
// the twin.
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

// Empty returns the patch that sets the empty image in standby twins that already have the image of the target,
// or nil if there are no such twins (SPEC §7.7). An upgrade would not restart such a twin, so no hot-upgrade
// migration would begin.
func Empty(pod *corev1.Pod, target Target, now metav1.Time) ([]byte, error) {
	if !target.Hot() {
		return nil, nil
	}
	w, err := newWrite(pod, target.Version, map[string]string{})
	if err != nil {
		return nil, about(pod, err)
	}
	var twins []podstate.StandbyToReset
	for _, sidecar := range target.Sidecars {
		active := w.read.Active[sidecar.Name]
		if !sidecar.Hot() || imageOf(pod, active) == sidecar.Image || sidecar.Image == sidecar.EmptyImage {
			continue
		}
		if standby := standbyTwin(pod, sidecar, active); standby != active && imageOf(pod, standby) == sidecar.Image {
			twins = append(twins, podstate.StandbyToReset{Sidecar: sidecar, Container: standby})
		}
	}
	if len(twins) == 0 {
		return nil, nil
	}
	if err := w.recordUnavailable(target.Set, target.OfRecord(pod, w.read)); err != nil {
		return nil, about(pod, err)
	}
	patch, err := w.empty(twins, target.Set, now)
	return patch, about(pod, err)
}

// Reset returns the patch that empties the standby twins of a migrated pod (SPEC §7.7, reset). Reset changes
// no hash, and keeps the record of the upgrade, so that crashes of the active twin still count.
func Reset(pod *corev1.Pod, version *podstate.Version, now metav1.Time) ([]byte, error) {
	w, err := newWrite(pod, version, map[string]string{})
	if err != nil {
		return nil, about(pod, err)
	}
	patch, err := w.empty(version.StandbysToReset(pod, w.read.Active), version.Set, now)
	return patch, about(pod, err)
}

func (w *write) empty(twins []podstate.StandbyToReset, set string, now metav1.Time) ([]byte, error) {
	newest := w.read.States[set]
	maps.Copy(w.before, podstate.Pending(w.pod, newest))
	for _, twin := range twins {
		w.setImage(twin.Container, twin.EmptyImage, false)
		w.annotations[v1alpha1.VersionAnnotationPrefix+twin.Container] = emptyVersion
		w.annotations[v1alpha1.VersionAltAnnotationPrefix+twin.Twin(twin.Container)] = emptyVersion
	}
	w.keepObserved(newest)
	return w.encode(set, newest, now)
}

// keepObserved keeps the recorded status of each container whose change the kubelet has observed. A status
// without a restart count is not kept, because the change would not count as observed after this write. If the
// container had not started before the change, its start was compared with the time of the record. This write moves
// the time, so keepObserved records the image that the container runs now.
func (w *write) keepObserved(newest record.State) {
	for name, before := range newest.LastContainerStatuses {
		if _, changed := w.before[name]; changed || before.RestartCount == nil {
			continue
		}
		container, status := podstate.Changed(w.pod, name)
		if before.ImageID == "" && container != nil && status != nil {
			before.Image, before.ImageID = container.Image, status.ImageID
		}
		w.before[name] = before
	}
}
