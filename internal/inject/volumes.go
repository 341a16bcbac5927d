package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/outrigger/outrigger/internal/defaults"
)

// noteVolumes adds the names of the volumes that a container uses to used.
func noteVolumes(used map[string]bool, container *corev1.Container) {
	for _, mount := range container.VolumeMounts {
		used[mount.Name] = true
	}
	for _, device := range container.VolumeDevices {
		used[device.Name] = true
	}
	for i := range container.Env {
		if from := container.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
			used[from.FileKeyRef.VolumeName] = true
		}
	}
}

// addVolumes adds the volumes of a SidecarSet whose names are in used. If the pod has a volume of the same
// name, addVolumes keeps the volume of the pod and adds a warning (SPEC §4.3). addVolumes returns an error if
// another SidecarSet adds a different volume with the same name.
func (i *Injection) addVolumes(set *Set, used map[string]bool) error {
	for n := range set.Spec.Volumes {
		one := &set.Spec.Volumes[n]
		if !used[one.Name] {
			continue
		}
		if slices.ContainsFunc(i.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == one.Name }) {
			i.warnings = append(i.warnings, fmt.Sprintf("volume %s: the pod has a volume of this name, so the volume of SidecarSet %s is not added", one.Name, set.Name))
			continue
		}
		at := slices.IndexFunc(i.volumes, func(v *corev1.Volume) bool { return v.Name == one.Name })
		switch {
		case at < 0:
			i.volumes, i.volumeSets = append(i.volumes, one), append(i.volumeSets, set.Name)
		case i.volumeSets[at] != set.Name && !sameVolume(i.volumes[at], one):
			return fmt.Errorf("volume %s: SidecarSet %s has another volume of this name; rename it or make them equal", one.Name, i.volumeSets[at])
		}
	}
	return nil
}

// addPullSecrets adds the pull secrets that the pod does not have.
func (i *Injection) addPullSecrets(secrets []corev1.LocalObjectReference) {
	for _, secret := range secrets {
		if !slices.Contains(i.pod.Spec.ImagePullSecrets, secret) && !slices.Contains(i.pullSecrets, secret) {
			i.pullSecrets = append(i.pullSecrets, secret)
		}
	}
}

// sameVolume reports whether two volumes are equal after the defaults are written, as in validation. A
// SidecarSet may have been stored before a default existed.
func sameVolume(a, b *corev1.Volume) bool {
	if equality.Semantic.DeepEqual(a, b) {
		return true
	}
	a, b = a.DeepCopy(), b.DeepCopy()
	defaults.Volume(a)
	defaults.Volume(b)
	return equality.Semantic.DeepEqual(a, b)
}
