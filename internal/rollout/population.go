// Package rollout plans: which pods of a set are upgraded next, in which
// order, within which bounds (SPEC §7). It is pure: the same population gives
// the same plan.
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
func Population(set *v1alpha1.SidecarSet, pods []corev1.Pod, namespaceLabels func(string) (map[string]string, error)) ([]Pod, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	inScope := namespaceFilter(scope, namespaceLabels)
	matched := make([]Pod, 0, len(pods))
	for i := range pods {
		pod := &pods[i]
		if !match.Active(pod) || !scope.Labels(pod.Labels) || !record.Injected(pod.Annotations, set.Name) {
			continue
		}
		if in, err := inScope(pod.Namespace); err != nil {
			return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
		} else if !in {
			continue
		}
		// A pod whose annotations cannot be read stops nobody else: it is
		// not managed until somebody mends it.
		if state, err := version.Of(pod); err == nil && state.Complete {
			matched = append(matched, Pod{Pod: pod, State: state})
		}
	}
	return matched, nil
}

func namespaceFilter(scope match.Scope, labels func(string) (map[string]string, error)) func(string) (bool, error) {
	known := map[string]bool{}
	return func(namespace string) (bool, error) {
		if in, ok := known[namespace]; ok {
			return in, nil
		}
		var found map[string]string
		if scope.NeedsNamespaceLabels() {
			var err error
			if found, err = labels(namespace); err != nil {
				return false, fmt.Errorf("look up namespace %s: %w", namespace, err)
			}
		}
		known[namespace] = scope.Namespace(namespace, found)
		return known[namespace], nil
	}
}
