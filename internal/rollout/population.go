// Package rollout plans: which pods of a set are upgraded next, in which
// order, within which bounds (SPEC §7). It is pure: the same population gives
// the same plan.
package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	return new(Memory).Population(set, pods, namespaceLabels)
}

// Memory keeps what was found out about the pods of one set, so that a plan
// looks only at those that changed. It is not for concurrent use.
type Memory struct {
	uid        types.UID
	generation int64
	hash       string
	states     map[types.UID]remembered
}

type remembered struct {
	// pod is the object that was looked at: caches replace them, and never
	// change them.
	pod   *corev1.Pod
	state podstate.State
	// member reports whether the pod is matched if its namespace is in scope.
	member bool
}

// Population is the function of the same name.
func (m *Memory) Population(set *v1alpha1.SidecarSet, pods []*corev1.Pod, namespaceLabels func(string) (map[string]string, error)) ([]Pod, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	m.prepare(set, len(pods))
	inScope := namespaceFilter(scope, namespaceLabels)
	matched := make([]Pod, 0, len(pods))
	for _, pod := range pods {
		known := m.look(set.Name, scope, version, pod)
		if !known.member {
			continue
		}
		if in, err := inScope(pod.Namespace); err != nil {
			return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
		} else if in {
			matched = append(matched, Pod{Pod: pod, State: known.state})
		}
	}
	return matched, nil
}

// prepare forgets what was known of another version, and of pods that are gone
// once they are the larger part.
func (m *Memory) prepare(set *v1alpha1.SidecarSet, pods int) {
	hash := set.Annotations[v1alpha1.HashAnnotation]
	if m.uid != set.UID || m.generation != set.Generation || m.hash != hash || len(m.states) > 2*pods {
		*m = Memory{uid: set.UID, generation: set.Generation, hash: hash, states: make(map[types.UID]remembered, pods)}
	}
}

func (m *Memory) look(set string, scope match.Scope, version *podstate.Version, pod *corev1.Pod) remembered {
	if known, ok := m.states[pod.UID]; ok && known.pod == pod {
		return known
	}
	known := remembered{pod: pod}
	if match.Active(pod) && scope.Labels(pod.Labels) && record.Injected(pod.Annotations, set) {
		// A pod whose annotations cannot be read stops nobody else: it is
		// not managed until somebody mends it.
		state, err := version.Of(pod)
		known.state, known.member = state, err == nil && state.Complete
	}
	m.states[pod.UID] = known
	return known
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
