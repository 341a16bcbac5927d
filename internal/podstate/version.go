package podstate

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// Version is what pods of one set are compared with.
type Version struct {
	Set              string
	Hash             string
	HashWithoutImage string
	// Sidecars are the containers and native sidecars of the set.
	Sidecars []Sidecar
}

// Sidecar is one container of a version.
type Sidecar struct {
	Name  string
	Image string
	// EmptyImage is what the standby twin of a hot sidecar holds; empty when cold.
	EmptyImage string
	// Native sidecars are init containers with restartPolicy Always.
	Native bool
}

// Hot reports whether the sidecar has two twins.
func (s Sidecar) Hot() bool { return s.EmptyImage != "" }

// Twins are the names of a hot sidecar's two containers.
func (s Sidecar) Twins() [2]string { return [2]string{s.Name + "-1", s.Name + "-2"} }

// Twin is the other one of a hot sidecar's two containers.
func (s Sidecar) Twin(name string) string {
	if twins := s.Twins(); name == twins[0] {
		return twins[1]
	}
	return s.Twins()[0]
}

// isTwin reports whether a container is one of a hot sidecar's two.
func (s Sidecar) isTwin(name string) bool {
	twins := s.Twins()
	return name == twins[0] || name == twins[1]
}

// NewVersion reads the version that a set declares now. The hashes are those
// that admission wrote; a set without them was stored past admission.
func NewVersion(set *v1alpha1.SidecarSet) (*Version, error) {
	v := &Version{
		Set:              set.Name,
		Hash:             set.Annotations[v1alpha1.HashAnnotation],
		HashWithoutImage: set.Annotations[v1alpha1.HashWithoutImageAnnotation],
	}
	if v.Hash == "" || v.HashWithoutImage == "" {
		return nil, fmt.Errorf("SidecarSet %s has no hash annotations: it was stored while the webhook was not consulted; write it again", set.Name)
	}
	for i := range set.Spec.Containers {
		v.Sidecars = append(v.Sidecars, newSidecar(&set.Spec.Containers[i]))
	}
	for i := range set.Spec.InitContainers {
		if c := &set.Spec.InitContainers[i]; revision.IsNativeSidecar(&c.Container) {
			v.Sidecars = append(v.Sidecars, Sidecar{Name: c.Name, Image: c.Image, Native: true})
		}
	}
	return v, nil
}

func newSidecar(c *v1alpha1.SidecarContainer) Sidecar {
	s := Sidecar{Name: c.Name, Image: c.Image}
	if c.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade {
		s.EmptyImage = c.UpgradeStrategy.HotUpgradeEmptyImage
	}
	return s
}

// Hot reports whether any sidecar is upgraded hot.
func (v *Version) Hot() bool { return slices.ContainsFunc(v.Sidecars, Sidecar.Hot) }

// Names are the sidecars' names, sorted; empty, not nil, when there are none.
func (v *Version) Names() []string {
	names := make([]string, 0, len(v.Sidecars))
	for _, s := range v.Sidecars {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// Container finds a container of a pod by name, or a native sidecar. Init
// containers that end are neither: nobody can run them again (SPEC §9.1).
func Container(pod *corev1.Pod, name string, native bool) *corev1.Container {
	containers := pod.Spec.Containers
	if native {
		containers = pod.Spec.InitContainers
	}
	for i := range containers {
		if c := &containers[i]; c.Name == name && (!native || revision.IsNativeSidecar(c)) {
			return c
		}
	}
	return nil
}

// Natives yields the native sidecars of a pod, its own ones included, and their
// statuses: nil for what the kubelet did not report yet.
func Natives(pod *corev1.Pod) iter.Seq2[*corev1.Container, *corev1.ContainerStatus] {
	return func(yield func(*corev1.Container, *corev1.ContainerStatus) bool) {
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			if revision.IsNativeSidecar(c) && !yield(c, Status(pod, c.Name, true)) {
				return
			}
		}
	}
}

// Status finds the status of a container of a pod by name; with native, that of
// an init container.
func Status(pod *corev1.Pod, name string, native bool) *corev1.ContainerStatus {
	statuses := pod.Status.ContainerStatuses
	if native {
		statuses = pod.Status.InitContainerStatuses
	}
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}
