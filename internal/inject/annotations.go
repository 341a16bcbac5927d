package inject

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
)

// The twins of a hot sidecar have these versions at injection (SPEC §4.8).
const (
	activeVersion  = "1"
	standbyVersion = "0"
)

func (i *Injection) setAnnotations(changes map[string]string) {
	if i.annotations == nil {
		i.annotations = map[string]string{}
	}
	for key, value := range changes {
		i.annotations[key] = value
		i.changed[key] = value
	}
}

// annotate records the injected SidecarSets in the annotations of the pod, and keeps the entries of other
// SidecarSets (SPEC §4.10). A pod that is restored from a backup may have the records of upgrades of another
// pod. annotate removes these records, because the containers of the new pod have other statuses.
func (i *Injection) annotate(sets []*Set, now metav1.Time) error {
	if len(sets) == 0 {
		return nil
	}
	names := record.InjectedSets(i.annotations)
	names = names[:min(len(names), max(record.MaxInjectedSets-len(sets), 0))]
	hashes, blank := make([]record.EncodedEntry, len(sets)), make([]record.EncodedEntry, len(sets))
	for at, set := range sets {
		names = append(names, set.Name)
		hashes[at], blank[at] = set.hash, set.blank
	}
	var err error
	changes := map[string]string{v1alpha1.InjectedListAnnotation: record.FormatInjectedSets(names)}
	if changes[v1alpha1.HashAnnotation], err = record.WithEncoded(i.annotations, v1alpha1.HashAnnotation, hashes, now); err != nil {
		return err
	}
	if changes[v1alpha1.HashWithoutImageAnnotation], err = record.WithEncoded(i.annotations, v1alpha1.HashWithoutImageAnnotation, blank, now); err != nil {
		return err
	}
	i.setAnnotations(changes)
	i.setAnnotations(record.WithoutUpgrades(i.annotations, namesOf(sets)))
	return i.annotateTwins(sets)
}

func (i *Injection) annotateTwins(sets []*Set) error {
	changes := map[string]string{}
	active, err := record.ActiveContainers(i.annotations)
	if err != nil {
		return err
	}
	for _, set := range sets {
		for _, s := range set.containers {
			if !s.hot() {
				continue
			}
			names := ContainerNames(s.SidecarContainer)
			active[s.Name] = names[0]
			changes[v1alpha1.VersionAnnotationPrefix+names[0]] = activeVersion
			changes[v1alpha1.VersionAltAnnotationPrefix+names[0]] = standbyVersion
			changes[v1alpha1.VersionAnnotationPrefix+names[1]] = standbyVersion
			changes[v1alpha1.VersionAltAnnotationPrefix+names[1]] = activeVersion
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if changes[v1alpha1.WorkingHotUpgradeContainerAnnotation], err = record.Format(active); err != nil {
		return err
	}
	i.setAnnotations(changes)
	return nil
}
