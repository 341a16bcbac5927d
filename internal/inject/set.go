package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// Set is a SidecarSet prepared for injection: what does not depend on a pod is
// computed once. It shares the SidecarSet's memory and never changes it, and
// may serve any number of pods at once.
type Set struct {
	name           string
	paused         bool
	spec           *v1alpha1.SidecarSetSpec
	version        *podstate.Version
	sidecars       []string
	revision       string
	containers     []sidecar
	initContainers []sidecar
}

// sidecar is a container to inject.
type sidecar struct {
	*v1alpha1.SidecarContainer
	// resources is nil without a resourcesPolicy.
	resources *resourcesPolicy
}

func (s sidecar) hot() bool {
	return s.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade
}

// names are those of the containers that the sidecar becomes: of a hot one the
// working twin first.
func (s sidecar) names() []string {
	if !s.hot() {
		return []string{s.Name}
	}
	twins := podstate.Sidecar{Name: s.Name}.Twins()
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
		name:     set.Name,
		paused:   set.Spec.InjectionStrategy.Paused,
		spec:     &set.Spec,
		version:  version,
		sidecars: version.Names(),
		revision: revision,
	}
	if prepared.containers, err = prepare(set.Spec.Containers); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	if prepared.initContainers, err = prepare(set.Spec.InitContainers); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	return prepared, nil
}

// Name of the SidecarSet.
func (s *Set) Name() string { return s.name }

func prepare(containers []v1alpha1.SidecarContainer) ([]sidecar, error) {
	prepared := make([]sidecar, len(containers))
	for i := range containers {
		prepared[i].SidecarContainer = &containers[i]
		if containers[i].ResourcesPolicy == nil {
			continue
		}
		policy, err := compileResources(containers[i].ResourcesPolicy)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", containers[i].Name, err)
		}
		prepared[i].resources = policy
	}
	return prepared, nil
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
