package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// Pod is a matched pod with its state towards the set's version.
type Pod struct {
	*corev1.Pod
	podstate.State
}

// Reference names the pod.
func (p *Pod) Reference() protocol.PodReference {
	return protocol.PodReference{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID}
}

// Population picks the matched pods of a set (SPEC §3): active, in scope,
// injected with the set, and holding every container of it. namespaceLabels is
// asked only when the set selects namespaces by label; its failure is an error,
// never "not matched".
func Population(set *v1alpha1.SidecarSet, pods []*corev1.Pod, namespaceLabels func(string) (map[string]string, error)) ([]Pod, error) {
	return (&setCache{records: &record.Reader{}}).population(set, pods, namespaceLabels)
}

func namespaceFilter(scope match.Scope, labels func(string) (map[string]string, error)) func(string) (bool, error) {
	cached := map[string]bool{}
	return func(namespace string) (bool, error) {
		if in, ok := cached[namespace]; ok {
			return in, nil
		}
		var found map[string]string
		if scope.NeedsNamespaceLabels() {
			var err error
			if found, err = labels(namespace); err != nil {
				return false, fmt.Errorf("look up namespace %s: %w", namespace, err)
			}
		}
		cached[namespace] = scope.Namespace(namespace, found)
		return cached[namespace], nil
	}
}
