package podstate

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// Version is the content of a SidecarSet that pods are compared with.
type Version struct {
	Set              string
	Hash             string
	HashWithoutImage string
	// FormerHashWithoutImage is the hash without images that earlier releases recorded, or empty.
	FormerHashWithoutImage string
	// Sidecars are the containers and native sidecars of the SidecarSet.
	Sidecars []Sidecar
	// ResizableHashes is status.resizableHashes of the SidecarSet.
	ResizableHashes []string
	// Good contains the revisions whose rollout has ended.
	Good []v1alpha1.GoodRevision
}

// Sidecar is one container of a version.
type Sidecar struct {
	Name  string
	Image string
	// EmptyImage is the image of the standby twin of a hot sidecar. EmptyImage is empty for a
	// cold sidecar.
	EmptyImage string
	// Resources are the resources of the container in a new pod.
	Resources corev1.ResourceRequirements
	// Native is set for a native sidecar, an init container with restartPolicy Always.
	Native bool
}

// Hot reports whether the sidecar has two twins.
func (s Sidecar) Hot() bool { return s.EmptyImage != "" }

// Twins returns the names of the two containers of a hot sidecar. The first twin is active at
// injection.
func Twins(sidecar string) []string { return []string{sidecar + "-1", sidecar + "-2"} }

// InPod returns the names of the sidecar's containers in a pod.
func (s Sidecar) InPod() []string {
	if s.Hot() {
		return Twins(s.Name)
	}
	return []string{s.Name}
}

// Twin returns the name of the other twin. name is the name of one twin of the hot sidecar.
func (s Sidecar) Twin(name string) string {
	if twins := Twins(s.Name); name == twins[0] {
		return twins[1]
	}
	return Twins(s.Name)[0]
}

// isTwin reports whether a container is one of the two twins of a hot sidecar.
func (s Sidecar) isTwin(name string) bool { return slices.Contains(Twins(s.Name), name) }

// NewVersion returns the current version of a SidecarSet. NewVersion computes the hashes of the content and
// ignores hash annotations that differ.
func NewVersion(set *v1alpha1.SidecarSet) (*Version, error) {
	set, err := revision.Completed(set)
	if err != nil {
		return nil, err
	}
	v := &Version{
		Set:              set.Name,
		Hash:             set.Annotations[v1alpha1.HashAnnotation],
		HashWithoutImage: set.Annotations[v1alpha1.HashWithoutImageAnnotation],
		Good:             set.Status.GoodRevisions,
		ResizableHashes:  set.Status.ResizableHashes,
	}
	if v.FormerHashWithoutImage, err = revision.FormerHashWithoutImage(&set.Spec); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	for i := range set.Spec.Containers {
		v.Sidecars = append(v.Sidecars, newSidecar(&set.Spec.Containers[i]))
	}
	for i := range set.Spec.InitContainers {
		if c := &set.Spec.InitContainers[i]; revision.IsNativeSidecar(&c.Container) {
			v.Sidecars = append(v.Sidecars, Sidecar{Name: c.Name, Image: c.Image, Resources: revision.CompletedResources(c.Resources), Native: true})
		}
	}
	return v, nil
}

func newSidecar(c *v1alpha1.SidecarContainer) Sidecar {
	s := Sidecar{Name: c.Name, Image: c.Image, Resources: revision.CompletedResources(c.Resources)}
	if c.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade {
		s.EmptyImage = c.UpgradeStrategy.HotUpgradeEmptyImage
	}
	return s
}

// Reaches reports whether a pod whose content has the hash hashWithoutImage differs from the version only in
// images.
func (v *Version) Reaches(hashWithoutImage string) bool {
	return hashWithoutImage == v.HashWithoutImage || v.RecordedBefore(hashWithoutImage)
}

// RecordedBefore reports whether an earlier release recorded hashWithoutImage for the content of the version.
func (v *Version) RecordedBefore(hashWithoutImage string) bool {
	return hashWithoutImage != "" && hashWithoutImage == v.FormerHashWithoutImage && hashWithoutImage != v.HashWithoutImage
}

// Hot reports whether the version has a hot sidecar.
func (v *Version) Hot() bool { return slices.ContainsFunc(v.Sidecars, Sidecar.Hot) }

// Names returns the sorted names of the sidecars. Without sidecars, the result is empty, but not
// nil.
func (v *Version) Names() []string {
	names := make([]string, 0, len(v.Sidecars))
	for _, s := range v.Sidecars {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// Container returns the container of a pod with the given name or, if native is true, the native sidecar with
// this name. The result is nil if the pod has no such container. Container never returns an ordinary init
// container, because an ordinary init container does not run again (SPEC §9.1).
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

// Natives yields each native sidecar of a pod and its status, including native sidecars that the author of the
// pod wrote. The status is nil if the kubelet has not reported the status yet.
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

// Status returns the status of the container of a pod with the given name or, if native is true, of the init
// container with this name. The result is nil if the kubelet has not reported the status yet.
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
