package validation

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
)

// sidecarChecks checks the containers of both lists together, because names are unique in a pod.
type sidecarChecks struct {
	names   sets.Set[string]
	volumes sets.Set[string]
}

func validateSidecars(set *v1alpha1.SidecarSet, at *field.Path) field.ErrorList {
	spec := &set.Spec
	checks := sidecarChecks{names: sets.New[string](), volumes: sets.New[string]()}
	for i := range spec.Volumes {
		checks.volumes.Insert(spec.Volumes[i].Name)
	}
	var errs field.ErrorList
	for i := range spec.InitContainers {
		c, path := &spec.InitContainers[i], at.Child("initContainers").Index(i)
		errs = append(errs, checks.sidecar(c, path)...)
		if c.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade {
			errs = append(errs, field.Invalid(path.Child("upgradeStrategy", "upgradeType"), c.UpgradeStrategy.UpgradeType,
				"init containers have no twins; declare the sidecar under spec.containers"))
		}
	}
	for i := range spec.Containers {
		errs = append(errs, checks.sidecar(&spec.Containers[i], at.Child("containers").Index(i))...)
	}
	return errs
}

func (v sidecarChecks) sidecar(c *v1alpha1.SidecarContainer, at *field.Path) field.ErrorList {
	errs := v.name(c, at.Child("name"))
	errs = append(errs, validateImage(c.Image, at.Child("image"))...)
	errs = append(errs, v.mounts(c, at)...)
	errs = append(errs, oneOf(c.ImagePullPolicy, at.Child("imagePullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, oneOf(c.PodInjectPolicy, at.Child("podInjectPolicy"),
		v1alpha1.BeforeAppContainerType, v1alpha1.AfterAppContainerType)...)
	errs = append(errs, validateSharing(&c.ShareVolumePolicy, at.Child("shareVolumePolicy"))...)
	errs = append(errs, validateSharing(c.ShareVolumeDevicePolicy, at.Child("shareVolumeDevicePolicy"))...)
	errs = append(errs, validateUpgrade(&c.UpgradeStrategy, at.Child("upgradeStrategy"))...)
	for i := range c.TransferEnv {
		errs = append(errs, validateTransfer(&c.TransferEnv[i], at.Child("transferEnv").Index(i))...)
	}
	return append(errs, validateResources(c, at)...)
}

func (v sidecarChecks) name(c *v1alpha1.SidecarContainer, at *field.Path) field.ErrorList {
	if c.Name == "" {
		return field.ErrorList{field.Required(at, "name the container")}
	}
	var errs field.ErrorList
	taken := v.names.Has(c.Name)
	for _, name := range inject.ContainerNames(c) {
		for _, problem := range validation.IsDNS1123Label(name) {
			errs = append(errs, field.Invalid(at, name, problem))
		}
		taken = taken || v.names.Has(name)
		v.names.Insert(name)
	}
	v.names.Insert(c.Name)
	if taken {
		errs = append(errs, advised(field.Duplicate(at, c.Name),
			"rename it: names are unique over containers and init containers, and a hot sidecar takes <name>-1 and <name>-2"))
	}
	return errs
}

func validateImage(image string, at *field.Path) field.ErrorList {
	switch {
	case image == "":
		return field.ErrorList{field.Required(at, "name the image")}
	case strings.TrimSpace(image) != image:
		return field.ErrorList{field.Invalid(at, image, "must not begin or end with white space")}
	}
	return nil
}

func (v sidecarChecks) mounts(c *v1alpha1.SidecarContainer, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths, devices := sets.New[string](), sets.New[string]()
	for i, mount := range c.VolumeMounts {
		path := at.Child("volumeMounts").Index(i)
		errs = append(errs, v.volume(mount.Name, path.Child("name"))...)
		errs = append(errs, uniquePath(paths, mount.MountPath, path.Child("mountPath"))...)
	}
	for i, device := range c.VolumeDevices {
		path := at.Child("volumeDevices").Index(i)
		errs = append(errs, v.volume(device.Name, path.Child("name"))...)
		errs = append(errs, uniquePath(devices, device.DevicePath, path.Child("devicePath"))...)
	}
	return errs
}

func (v sidecarChecks) volume(name string, at *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "name a volume of spec.volumes")}
	case !v.volumes.Has(name):
		return field.ErrorList{advised(field.NotFound(at, name), "add the volume to spec.volumes")}
	}
	return nil
}

func uniquePath(seen sets.Set[string], path string, at *field.Path) field.ErrorList {
	switch {
	case path == "":
		return field.ErrorList{field.Required(at, "say where the volume appears in the container")}
	case seen.Has(path):
		return field.ErrorList{field.Invalid(at, path, "the container already uses this path; choose another path")}
	}
	seen.Insert(path)
	return nil
}

func validateSharing(policy *v1alpha1.ShareVolumePolicy, at *field.Path) field.ErrorList {
	if policy == nil {
		return nil
	}
	return oneOf(policy.Type, at.Child("type"), v1alpha1.ShareVolumePolicyEnabled, v1alpha1.ShareVolumePolicyDisabled)
}

func validateUpgrade(strategy *v1alpha1.SidecarContainerUpgradeStrategy, at *field.Path) field.ErrorList {
	errs := oneOf(strategy.UpgradeType, at.Child("upgradeType"),
		v1alpha1.SidecarContainerColdUpgrade, v1alpha1.SidecarContainerHotUpgrade)
	if strategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade && strategy.HotUpgradeEmptyImage == "" {
		errs = append(errs, field.Required(at.Child("hotUpgradeEmptyImage"), "name the image of the standby twin"))
	}
	return errs
}

func validateTransfer(transfer *v1alpha1.TransferEnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	from := transfer.SourceContainerNameFrom
	switch {
	case from == nil && transfer.SourceContainerName == "":
		errs = append(errs, field.Required(at.Child("sourceContainerName"), "name the app container, or use sourceContainerNameFrom"))
	case from != nil && from.FieldRef == nil:
		errs = append(errs, field.Required(at.Child("sourceContainerNameFrom", "fieldRef"), "say where the container's name is read"))
	case from != nil && !inject.SupportedSourceField(from.FieldRef.FieldPath):
		errs = append(errs, field.NotSupported(at.Child("sourceContainerNameFrom", "fieldRef", "fieldPath"), from.FieldRef.FieldPath,
			[]string{"metadata.name", "metadata.labels['<KEY>']", "metadata.annotations['<KEY>']"}))
	}
	if transfer.EnvName == "" && len(transfer.EnvNames) == 0 {
		errs = append(errs, field.Required(at.Child("envName"), "name the variable, or several in envNames"))
	}
	return errs
}
