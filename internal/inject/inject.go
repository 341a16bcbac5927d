// Package inject computes the changes of SidecarSets to a new pod (SPEC §4).
package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Injection contains the changes of SidecarSets to one pod. The size of the patch depends on the
// changes, not on the pod.
type Injection struct {
	pod            *corev1.Pod
	containers     insertions
	initContainers insertions
	volumes        []*corev1.Volume
	// volumeSets contains the name of the SidecarSet of each volume.
	volumeSets  []string
	pullSecrets []corev1.LocalObjectReference
	// annotations contains the annotations of the pod after the changes.
	annotations map[string]string
	changed     map[string]string
	// warnings contains the warnings for the creator of the pod.
	warnings []string
}

// insertions contains the containers to inject into one list of the pod, by position.
type insertions struct {
	existing      []corev1.Container
	before, after []*corev1.Container
	// replaced maps the index of a container in existing to the container that replaces this container.
	replaced map[int]*corev1.Container
}

// SetError is an error about a SidecarSet. The message of Err names the SidecarSet, too.
type SetError struct {
	Set string
	Err error
}

func (e SetError) Error() string { return e.Err.Error() }

func (e SetError) Unwrap() error { return e.Err }

// Pod computes the injection of SidecarSets that match a pod (SPEC §4.1 to §4.10), except paused SidecarSets.
// now is the timestamp in the annotations. Pod does not change the pod. Errors name the SidecarSet, the cause,
// and the container if the cause is in a container.
func Pod(pod *corev1.Pod, sets []*Set, now metav1.Time) (*Injection, error) {
	injection := &Injection{
		pod:            pod,
		containers:     insertions{existing: pod.Spec.Containers},
		initContainers: insertions{existing: pod.Spec.InitContainers},
		annotations:    maps.Clone(pod.Annotations),
		changed:        map[string]string{},
	}
	sets = active(sets)
	injectedBy := map[string]string{}
	if err := claimNames(injectedBy, pod, sets); err != nil {
		return nil, err
	}
	own := ownPart(pod, injectedBy)
	injection.warn(own, injectedBy, sets)
	for _, set := range sets {
		if err := injection.add(set, own); err != nil {
			return nil, SetError{set.Name, fmt.Errorf("SidecarSet %s: %w", set.Name, err)}
		}
	}
	injection.initContainers.sortByName()
	if err := injection.annotate(sets, now); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", joinedNames(sets), err)
	}
	return injection, nil
}

// active returns the SidecarSets that are not paused, sorted by name (SPEC §4.1).
func active(sets []*Set) []*Set {
	kept := slices.DeleteFunc(slices.Clone(sets), func(set *Set) bool { return set.Spec.InjectionStrategy.Paused })
	slices.SortFunc(kept, func(a, b *Set) int { return strings.Compare(a.Name, b.Name) })
	return kept
}

func namesOf(sets []*Set) []string {
	names := make([]string, 0, len(sets))
	for _, set := range sets {
		names = append(names, set.Name)
	}
	return names
}

func joinedNames(sets []*Set) string { return strings.Join(namesOf(sets), ", ") }

func (i *Injection) add(set *Set, own app) error {
	used := map[string]bool{}
	for _, s := range set.initContainers {
		built, warnings, err := own.inject(s)
		if err != nil {
			return fmt.Errorf("init container %s: %w", s.Name, err)
		}
		i.warnings = append(i.warnings, warnings...)
		i.initContainers.insert(built, s.PodInjectPolicy == v1alpha1.BeforeAppContainerType)
		noteVolumes(used, built)
	}
	for _, s := range set.containers {
		built, warnings, err := own.inject(s)
		if err != nil {
			return fmt.Errorf("container %s: %w", s.Name, err)
		}
		i.warnings = append(i.warnings, warnings...)
		noteVolumes(used, built)
		for _, container := range own.twins(s, built) {
			i.containers.insert(container, s.PodInjectPolicy != v1alpha1.AfterAppContainerType)
		}
	}
	if err := i.addVolumes(set, used); err != nil {
		return err
	}
	i.addPullSecrets(set.Spec.ImagePullSecrets)
	changes, err := PatchMetadata(i.annotations, set.Spec.PatchPodMetadata)
	if err != nil {
		return err
	}
	i.setAnnotations(changes)
	return nil
}

// Containers returns the number of injected containers, including init containers.
func (i *Injection) Containers() int { return i.containers.count() + i.initContainers.count() }

func (p *insertions) count() int { return len(p.before) + len(p.after) + len(p.replaced) }

func (p *insertions) insert(container *corev1.Container, before bool) {
	for index := range p.existing {
		if p.existing[index].Name == container.Name {
			if p.replaced == nil {
				p.replaced = map[int]*corev1.Container{}
			}
			p.replaced[index] = container
			return
		}
	}
	if before {
		p.before = append(p.before, container)
	} else {
		p.after = append(p.after, container)
	}
}

func (p *insertions) sortByName() {
	byName := func(a, b *corev1.Container) int { return strings.Compare(a.Name, b.Name) }
	slices.SortStableFunc(p.before, byName)
	slices.SortStableFunc(p.after, byName)
}

// warn adds a warning for each container of the author of the pod that a sidecar replaces (SPEC §4.2). If sets
// is not empty, warn also adds a warning for each other container that has the variable IS_INJECTED (SPEC
// §4.5).
func (i *Injection) warn(own app, injectedBy map[string]string, sets []*Set) {
	for _, container := range own.replaced {
		i.warnings = append(i.warnings, fmt.Sprintf("container %s: a container of SidecarSet %s replaces it", container, injectedBy[container]))
	}
	for _, container := range own.selfDeclared {
		if len(sets) > 0 {
			i.warnings = append(i.warnings, fmt.Sprintf("container %s: because of its variable %s, its volumes, variables and resources are not shared with SidecarSet %s",
				container, v1alpha1.InjectedEnv, joinedNames(sets)))
		}
	}
}

// Warnings returns the warnings for the creator of the pod. A warning names a part of the pod
// that limits the injection without an error (SPEC §4.3, §4.5).
func (i *Injection) Warnings() []string { return i.warnings }
