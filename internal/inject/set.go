package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
)

// Set is a SidecarSet that is prepared for injection. Set contains the precomputed results that do not depend
// on the pod. Set shares memory with the SidecarSet, and never changes the SidecarSet. Set is safe for
// concurrent use.
type Set struct {
	*v1alpha1.SidecarSet
	containers     []sidecar
	initContainers []sidecar
	// names and initNames are the container names of the SidecarSet, including twins.
	names, initNames []string
	// hash and blank are the entries of the SidecarSet in the annotations of a pod.
	hash, blank record.EncodedEntry
}

// sidecar is a container to inject.
type sidecar struct {
	*v1alpha1.SidecarContainer
	// resources is nil without a resourcesPolicy.
	resources *resourcesPolicy
	// env contains the variables of the sidecar, and IS_INJECTED.
	env []corev1.EnvVar
}

func (s sidecar) hot() bool { return isHot(s.SidecarContainer) }

func isHot(c *v1alpha1.SidecarContainer) bool {
	return c.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade
}

// ContainerNames returns the names of a sidecar's containers in a pod. A cold sidecar has one
// container. A hot sidecar has two twins, and the active twin comes first (SPEC §4.8).
func ContainerNames(c *v1alpha1.SidecarContainer) []string {
	if !isHot(c) {
		return []string{c.Name}
	}
	return podstate.Twins(c.Name)
}

// Prepare prepares a SidecarSet. name is the name of the ControllerRevision with the content of the
// SidecarSet. Prepare returns an error for a resource expression that cannot be parsed.
func Prepare(set *v1alpha1.SidecarSet, name string) (*Set, error) {
	set, err := revision.Completed(set)
	if err != nil {
		return nil, err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	prepared := &Set{SidecarSet: set}
	if err := prepared.encodeEntries(version, name); err != nil {
		return nil, err
	}
	if prepared.containers, err = prepare(set.Spec.Containers); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	if prepared.initContainers, err = prepare(set.Spec.InitContainers); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	for _, s := range prepared.containers {
		prepared.names = append(prepared.names, ContainerNames(s.SidecarContainer)...)
	}
	for _, s := range prepared.initContainers {
		prepared.initNames = append(prepared.initNames, s.Name)
	}
	return prepared, nil
}

// encodeEntries encodes the entry of the SidecarSet for each of the two hash annotations of a pod, with and
// without images (SPEC §2).
func (s *Set) encodeEntries(version *podstate.Version, revision string) (err error) {
	entry := record.Entry{Hash: version.HashWithoutImage, SidecarSetName: s.Name, SidecarList: version.Names()}
	if s.blank, err = record.EncodeEntry(entry); err != nil {
		return err
	}
	entry.Hash, entry.ControllerRevision = version.Hash, revision
	s.hash, err = record.EncodeEntry(entry)
	return err
}

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
