package inject

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// app is the part of the pod that the author of the pod wrote. app excludes containers of an earlier
// injection into a copied pod, and containers that this injection replaces.
type app struct {
	pod        *corev1.Pod
	containers []*corev1.Container
	natives    []*corev1.Container
	// selfDeclared contains the names of containers that are excluded only because of IS_INJECTED.
	selfDeclared []string
	// replaced contains the names of the author's containers that a sidecar replaces.
	replaced []string
}

// ownPart returns the part of the pod that the author of the pod wrote. injectedBy maps the name of each
// injected container to its SidecarSet.
func ownPart(pod *corev1.Pod, injectedBy map[string]string) app {
	own := app{pod: pod}
	pick := func(c *corev1.Container, into *[]*corev1.Container) {
		_, replaced := injectedBy[c.Name]
		switch {
		case replaced && Injected(c):
		case replaced:
			own.replaced = append(own.replaced, c.Name)
		case Injected(c):
			own.selfDeclared = append(own.selfDeclared, c.Name)
		default:
			*into = append(*into, c)
		}
	}
	for i := range pod.Spec.Containers {
		pick(&pod.Spec.Containers[i], &own.containers)
	}
	for i := range pod.Spec.InitContainers {
		switch c := &pod.Spec.InitContainers[i]; {
		case revision.IsNativeSidecar(c):
			pick(c, &own.natives)
		case injectedBy[c.Name] != "" && !Injected(c):
			own.replaced = append(own.replaced, c.Name)
		}
	}
	return own
}

// Injected reports whether a container has the variable IS_INJECTED=true, which each injected container
// has.
func Injected(container *corev1.Container) bool {
	return slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool {
		return e.Name == v1alpha1.InjectedEnv && e.Value == "true"
	})
}

func (a app) container(name string) *corev1.Container {
	for _, c := range a.containers {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// inject builds the container of a sidecar for this pod. For a hot sidecar, the caller builds the twins from
// this container. Lists of the container, such as env, begin with the elements of the sidecar. inject copies a
// list before appending, because the sidecar is shared between pods. inject also returns warnings for the
// creator of the pod.
func (a app) inject(s sidecar) (built *corev1.Container, warnings []string, err error) {
	built = new(s.Container)
	added := a.transferred(s.TransferEnv)
	if s.ShareVolumePolicy.Type == v1alpha1.ShareVolumePolicyEnabled {
		var needed []appVariable
		built.VolumeMounts, needed, warnings = a.sharedMounts(built, added)
		added = append(added, needed...)
	}
	built.Env = addMissingEnv(s.env, added)
	if s.ShareVolumeDevicePolicy != nil && s.ShareVolumeDevicePolicy.Type == v1alpha1.ShareVolumePolicyEnabled {
		built.VolumeDevices = a.sharedDevices(built)
	}
	if s.resources != nil {
		resources, err := s.resources.compute(a)
		if err != nil {
			return nil, nil, fmt.Errorf("resourcesPolicy: %w", err)
		}
		built.Resources = resources
	}
	return built, warnings, nil
}

// sharedMounts returns the mounts of a sidecar followed by the mounts of the app containers at paths that have
// no mount yet (SPEC §4.5). Kubernetes rejects a container with a path or a volume in both mounts and devices,
// so sharedMounts skips such mounts. A Bidirectional mount becomes HostToContainer in an unprivileged sidecar,
// because Kubernetes permits Bidirectional mounts only in privileged containers. sharedMounts also returns the
// variables that the subPathExpr of the added mounts reference. If missing returns a variable that envFrom of
// the sidecar cannot define, sharedMounts skips the mount, and returns a warning for the app container.
// transferred contains the variables that transferEnv copies to the sidecar.
func (a app) sharedMounts(into *corev1.Container, transferred []appVariable) (mounts []corev1.VolumeMount, needed []appVariable, warnings []string) {
	mounts = slices.Clip(into.VolumeMounts)
	used, own, known, given := newUsed(into), variableNames(into, nil), variableNames(into, transferred), givenBy(transferred)
	for _, source := range a.containers {
		mounts = slices.Grow(mounts, len(source.VolumeMounts))
		variables, unshared := references{of: source, given: given}, ""
		for _, mount := range source.VolumeMounts {
			at := path.Clean(mount.MountPath)
			if used.mountPaths[at] || used.devicePaths[at] || used.devices[mount.Name] {
				continue
			}
			if lack := variables.missing(mount.SubPathExpr, own, known); lack.differs || lack.name != "" && len(into.EnvFrom) == 0 {
				unshared = cmp.Or(unshared, fmt.Sprintf("container %s: sidecar %s does not get mounts such as %s, because %s", source.Name, into.Name, mount.MountPath, lack))
				continue
			}
			used.mountPaths[at] = true
			if propagation := mount.MountPropagation; propagation != nil && *propagation == corev1.MountPropagationBidirectional && !privileged(into) {
				mount.MountPropagation = new(corev1.MountPropagationHostToContainer)
			}
			mounts = append(mounts, mount)
			referenced := variables.referencedBy(mount.SubPathExpr, own)
			given.add(referenced)
			variables.forgetDefinedTwice(referenced)
			needed = append(needed, referenced...)
		}
		if unshared != "" {
			warnings = append(warnings, unshared)
		}
	}
	return mounts, needed, warnings
}

func privileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// used contains the paths and the volumes of the mounts and devices of a container. used has maps, because
// linear searches would take minutes for a pod with tens of thousands of mounts.
type used struct {
	mountPaths, devicePaths, mounts, devices map[string]bool
}

func newUsed(c *corev1.Container) used {
	u := used{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, mount := range c.VolumeMounts {
		u.mountPaths[path.Clean(mount.MountPath)], u.mounts[mount.Name] = true, true
	}
	for _, device := range c.VolumeDevices {
		u.devicePaths[path.Clean(device.DevicePath)], u.devices[device.Name] = true, true
	}
	return u
}

// sharedDevices returns the devices of a sidecar followed by the devices of the app containers whose paths and
// volumes the sidecar does not use yet. Kubernetes permits only one device of a volume in a container.
func (a app) sharedDevices(into *corev1.Container) []corev1.VolumeDevice {
	devices, used := slices.Clip(into.VolumeDevices), newUsed(into)
	for _, source := range a.containers {
		for _, device := range source.VolumeDevices {
			at := path.Clean(device.DevicePath)
			if used.devicePaths[at] || used.mountPaths[at] || used.devices[device.Name] || used.mounts[device.Name] {
				continue
			}
			used.devicePaths[at], used.devices[device.Name] = true, true
			devices = append(devices, device)
		}
	}
	return devices
}

// twins returns the containers of a sidecar. A cold sidecar has one container. A hot sidecar has an active and
// a standby twin (SPEC §4.8). In a pod with hostNetwork, only the active twin declares ports.
func (a app) twins(s sidecar, built *corev1.Container) []*corev1.Container {
	if !s.hot() {
		return []*corev1.Container{built}
	}
	names := ContainerNames(s.SidecarContainer)
	both := []*corev1.Container{new(*built), new(*built)}
	both[1].Image = s.UpgradeStrategy.HotUpgradeEmptyImage
	if a.pod.Spec.HostNetwork {
		removePorts(both[1])
	}
	for i := range both {
		both[i].Name = names[i]
		env := slices.Clone(built.Env)
		if !a.has(s.Name) {
			nameTwin(env[:len(s.env)], s.Name, names[i])
		}
		env = setEnv(env, fromAnnotation(v1alpha1.VersionEnv, v1alpha1.VersionAnnotationPrefix+names[i]))
		both[i].Env = setEnv(env, fromAnnotation(v1alpha1.VersionAltEnv, v1alpha1.VersionAltAnnotationPrefix+names[i]))
	}
	return both
}

// has reports whether the pod has a container or an init container with a name.
func (a app) has(name string) bool {
	return a.container(name) != nil || slices.ContainsFunc(a.pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

// nameTwin replaces the name of a hot sidecar with the name of its twin in each resourceFieldRef of env,
// because the pod has no container with the name of the sidecar. nameTwin changes env.
func nameTwin(env []corev1.EnvVar, sidecar, twin string) {
	for i := range env {
		if from := env[i].ValueFrom; from != nil && from.ResourceFieldRef != nil && from.ResourceFieldRef.ContainerName == sidecar {
			env[i].ValueFrom = from.DeepCopy()
			env[i].ValueFrom.ResourceFieldRef.ContainerName = twin
		}
	}
}

func fromAnnotation(name, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: fmt.Sprintf("metadata.annotations['%s']", key),
	}}}
}
