package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// Set is a SidecarSet prepared for injection: what does not depend on a pod is
// computed once. It shares the SidecarSet's memory and never changes it, and
// may serve any number of pods at once.
type Set struct {
	name           string
	paused         bool
	spec           *v1alpha1.SidecarSetSpec
	containers     []sidecar
	initContainers []sidecar
	volumes        []*corev1.Volume
	// names are those of all containers that it brings.
	names []string
	// hash and blank are its entries in a pod's annotations.
	hash, blank record.EncodedEntry
}

// sidecar is a container to inject.
type sidecar struct {
	*v1alpha1.SidecarContainer
	// resources is nil without a resourcesPolicy.
	resources *resourcesPolicy
	// env are its own variables and IS_INJECTED.
	env []corev1.EnvVar
}

func (s sidecar) hot() bool { return isHot(s.SidecarContainer) }

func isHot(c *v1alpha1.SidecarContainer) bool {
	return c.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade
}

// ContainerNames are those of the containers that a sidecar becomes in a pod: its own,
// or those of a hot one's twins, the active one first (SPEC §4.8).
func ContainerNames(c *v1alpha1.SidecarContainer) []string {
	if !isHot(c) {
		return []string{c.Name}
	}
	twins := podstate.Sidecar{Name: c.Name}.Twins()
	return twins[:]
}

// Prepare reads a SidecarSet. revision names the ControllerRevision of its
// content. A set without hash annotations, or with resource expressions that do
// not parse, is an error.
func Prepare(set *v1alpha1.SidecarSet, revision string) (*Set, error) {
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	prepared := &Set{
		name:   set.Name,
		paused: set.Spec.InjectionStrategy.Paused,
		spec:   &set.Spec,
	}
	if err := prepared.encodeEntries(version, revision); err != nil {
		return nil, err
	}
	if prepared.containers, err = prepare(set.Spec.Containers); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	if prepared.initContainers, err = prepare(set.Spec.InitContainers); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	for i := range set.Spec.Volumes {
		prepared.volumes = append(prepared.volumes, &set.Spec.Volumes[i])
	}
	for _, s := range slices.Concat(prepared.containers, prepared.initContainers) {
		prepared.names = append(prepared.names, ContainerNames(s.SidecarContainer)...)
	}
	return prepared, nil
}

// encodeEntries prepares the set's entries in annotations (SPEC §2).
func (s *Set) encodeEntries(version *podstate.Version, revision string) (err error) {
	entry := record.Entry{Hash: version.HashWithoutImage, SidecarSetName: s.name, SidecarList: version.Names()}
	if s.blank, err = record.EncodeEntry(entry); err != nil {
		return err
	}
	entry.Hash, entry.ControllerRevision = version.Hash, revision
	s.hash, err = record.EncodeEntry(entry)
	return err
}

// Name of the SidecarSet.
func (s *Set) Name() string { return s.name }

func prepare(containers []v1alpha1.SidecarContainer) ([]sidecar, error) {
	prepared := make([]sidecar, len(containers))
	for i := range containers {
		var err error
		if prepared[i], err = newSidecar(&containers[i]); err != nil {
			return nil, fmt.Errorf("container %s: %w", containers[i].Name, err)
		}
	}
	return prepared, nil
}

func newSidecar(container *v1alpha1.SidecarContainer) (made sidecar, err error) {
	made.SidecarContainer = container
	made.env = slices.Clip(setEnv(slices.Clone(container.Env), corev1.EnvVar{Name: v1alpha1.InjectedEnv, Value: "true"}))
	if container.ResourcesPolicy != nil {
		made.resources, err = compileResources(container.ResourcesPolicy)
	}
	return made, err
}

// active returns the sets that inject, in name order (SPEC §4.1).
func active(sets []*Set) []*Set {
	kept := make([]*Set, 0, len(sets))
	for _, set := range sets {
		if !set.paused {
			kept = append(kept, set)
		}
	}
	slices.SortFunc(kept, func(a, b *Set) int { return strings.Compare(a.name, b.name) })
	return kept
}
