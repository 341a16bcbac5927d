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

// Injection is what sets add to one pod. It keeps only what is inserted, so that the
// patch costs what was added and not what the pod holds.
type Injection struct {
	pod            *corev1.Pod
	containers     insertions
	initContainers insertions
	volumes        []*corev1.Volume
	pullSecrets    []corev1.LocalObjectReference
	// annotations are the pod's with the changes applied.
	annotations map[string]string
	changed     map[string]string
	// warnings are about what of the pod keeps sets from their part.
	warnings []string
}

// insertions are the injected containers of one list of the pod, by where they go.
type insertions struct {
	existing      []corev1.Container
	before, after []*corev1.Container
	// replaced is keyed by the index in existing.
	replaced map[int]*corev1.Container
}

// SetError names the set that an error is about; its message does already.
type SetError struct {
	Set string
	Err error
}

func (e SetError) Error() string { return e.Err.Error() }

func (e SetError) Unwrap() error { return e.Err }

// Pod computes what the sets, all of which match the pod, add to it (SPEC §4,
// items 1 to 10). Paused sets are skipped. now goes into the pod's annotations.
// The pod is not changed. Errors name the set, the container and the cause.
func Pod(pod *corev1.Pod, sets []*Set, now metav1.Time) (*Injection, error) {
	injection := &Injection{
		pod:            pod,
		containers:     insertions{existing: pod.Spec.Containers},
		initContainers: insertions{existing: pod.Spec.InitContainers},
		annotations:    maps.Clone(pod.Annotations),
		changed:        map[string]string{},
	}
	sets = active(sets)
	if err := clash(pod, sets); err != nil {
		return nil, err
	}
	own := ownPart(pod, sets)
	injection.warnOfInjectedEnv(own.selfDeclared, sets)
	for _, set := range sets {
		if err := injection.add(set, own); err != nil {
			return nil, SetError{set.name, fmt.Errorf("SidecarSet %s: %w", set.name, err)}
		}
	}
	injection.initContainers.sortByName()
	if err := injection.annotate(sets, now); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", namesOf(sets), err)
	}
	return injection, nil
}

// clash finds a container that two sets bring. Such sets may have been accepted at the
// same time. The API server would refuse the pod without a word about them.
func clash(pod *corev1.Pod, sets []*Set) error {
	if len(sets) < 2 {
		return nil
	}
	bringer := map[string]string{}
	for _, set := range sets {
		for _, name := range set.names {
			other, taken := bringer[name]
			if !taken {
				bringer[name] = set.name
			} else if other != set.name && !hasContainer(pod, name) {
				return SetError{set.name, fmt.Errorf("SidecarSet %s: container %s: SidecarSet %s injects one of this name, too; rename it or narrow spec.selector",
					set.name, name, other)}
			}
		}
	}
	return nil
}

func hasContainer(pod *corev1.Pod, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.Containers, named) || slices.ContainsFunc(pod.Spec.InitContainers, named)
}

func namesOf(sets []*Set) string {
	names := make([]string, 0, len(sets))
	for _, set := range sets {
		names = append(names, set.name)
	}
	return strings.Join(names, ", ")
}

func (i *Injection) add(set *Set, own app) error {
	used := map[string]bool{}
	for _, s := range set.initContainers {
		built, err := own.inject(s)
		if err != nil {
			return fmt.Errorf("init container %s: %w", s.Name, err)
		}
		i.initContainers.insert(built, s.PodInjectPolicy == v1alpha1.BeforeAppContainerType)
		noteVolumes(used, built)
	}
	for _, s := range set.containers {
		built, err := own.inject(s)
		if err != nil {
			return fmt.Errorf("container %s: %w", s.Name, err)
		}
		noteVolumes(used, built)
		for _, container := range twins(s, built) {
			i.containers.insert(container, s.PodInjectPolicy != v1alpha1.AfterAppContainerType)
		}
	}
	i.addVolumes(set, used)
	i.addPullSecrets(set.spec.ImagePullSecrets)
	changes, err := PatchMetadata(i.annotations, set.spec.PatchPodMetadata)
	if err != nil {
		return err
	}
	i.setAnnotations(changes)
	return nil
}

// Containers is how many are injected, init containers included.
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

func noteVolumes(used map[string]bool, container *corev1.Container) {
	for _, mount := range container.VolumeMounts {
		used[mount.Name] = true
	}
	for _, device := range container.VolumeDevices {
		used[device.Name] = true
	}
}

// addVolumes adds the used ones; a volume that is there already stays (SPEC §4.3).
func (i *Injection) addVolumes(set *Set, used map[string]bool) {
	for _, one := range set.volumes {
		switch {
		case !used[one.Name] || slices.ContainsFunc(i.volumes, func(v *corev1.Volume) bool { return v.Name == one.Name }):
		case slices.ContainsFunc(i.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == one.Name }):
			i.warnings = append(i.warnings, fmt.Sprintf("volume %s: the pod's own stays in place of that of SidecarSet %s", one.Name, set.name))
		default:
			i.volumes = append(i.volumes, one)
		}
	}
}

// warnOfInjectedEnv warns of containers that say of themselves that they were injected.
func (i *Injection) warnOfInjectedEnv(selfDeclared []string, sets []*Set) {
	if len(selfDeclared) == 0 || len(sets) == 0 {
		return
	}
	names := make([]string, len(sets))
	for at, set := range sets {
		names[at] = set.name
	}
	for _, container := range selfDeclared {
		i.warnings = append(i.warnings, fmt.Sprintf("container %s: its variable %s keeps its volumes, variables and resources from SidecarSet %s",
			container, v1alpha1.InjectedEnv, strings.Join(names, ", ")))
	}
}

// Warnings are for whoever creates the pod: what in it keeps sets from their
// part without an error (SPEC §4.3, §4.5).
func (i *Injection) Warnings() []string { return i.warnings }

func (i *Injection) addPullSecrets(secrets []corev1.LocalObjectReference) {
	for _, secret := range secrets {
		if !slices.Contains(i.pod.Spec.ImagePullSecrets, secret) && !slices.Contains(i.pullSecrets, secret) {
			i.pullSecrets = append(i.pullSecrets, secret)
		}
	}
}
