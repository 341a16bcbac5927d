package rollout

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Memories keep a Memory for each set. They may be used concurrently.
type Memories struct {
	mu   sync.Mutex
	sets map[string]*guarded
}

type guarded struct {
	mu     sync.Mutex
	memory Memory
}

// Population is the function of the same name.
func (m *Memories) Population(set *v1alpha1.SidecarSet, pods []*corev1.Pod, namespaceLabels func(string) (map[string]string, error)) ([]Pod, error) {
	one := m.of(set.Name)
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.memory.Population(set, pods, namespaceLabels)
}

func (m *Memories) of(set string) *guarded {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets == nil {
		m.sets = map[string]*guarded{}
	}
	if m.sets[set] == nil {
		m.sets[set] = &guarded{}
	}
	return m.sets[set]
}

// Forget frees what was kept of a set that is gone, or needs no plan for now.
func (m *Memories) Forget(set string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sets, set)
}
