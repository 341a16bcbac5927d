package view

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// leftAlone is a pod that was injected with an older version of a set, and that rollouts
// leave out: they count and upgrade the matched pods alone (SPEC §3).
type leftAlone struct {
	*corev1.Pod
	entries record.Entries
	phase   PodPhase
	why     string
}

const (
	unreadableRecord = "what is recorded in its annotations cannot be read: "
	lacksContainers  = "it lacks containers of the set"
)

// findLeftAlone asks for the labels of namespaces only if the set selects by them.
func findLeftAlone(set *v1alpha1.SidecarSet, pods []*corev1.Pod, labels func(string) (map[string]string, error)) ([]leftAlone, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	var found []leftAlone
	for _, pod := range pods {
		one := leftAlone{Pod: pod}
		if !match.Active(pod) || !record.Injected(pod.Annotations, set.Name) || !scope.Labels(pod.Labels) || !one.look(version) {
			continue
		}
		var of map[string]string
		if scope.NeedsNamespaceLabels() {
			if of, err = labels(pod.Namespace); err != nil {
				return nil, err
			}
		}
		if scope.Namespace(pod.Namespace, of) {
			found = append(found, one)
		}
	}
	return found, nil
}

// look reports whether the pod is left alone, and notes why.
func (p *leftAlone) look(version *podstate.Version) bool {
	read, err := record.Read(p.Annotations)
	if err != nil {
		p.phase, p.why = PodUnreadable, unreadableRecord+err.Error()
		return true
	}
	state := version.OfRecord(p.Pod, read)
	p.entries, p.phase, p.why = read.Hashes, PodNotUpgradable, lacksContainers
	return !state.Complete && !state.Updated
}
