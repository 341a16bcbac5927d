package activities

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

// memories keep the states of pods between plans, for each set that is being
// rolled out.
type memories struct {
	mu   sync.Mutex
	sets map[types.UID]*memory
}

type memory struct {
	mu sync.Mutex
	rollout.Memory
}

func (m *memories) population(set *v1alpha1.SidecarSet, pods []*corev1.Pod, namespaceLabels func(string) (map[string]string, error)) ([]rollout.Pod, error) {
	one := m.of(set.UID)
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.Population(set, pods, namespaceLabels)
}

func (m *memories) of(set types.UID) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets == nil {
		m.sets = map[types.UID]*memory{}
	}
	if m.sets[set] == nil {
		m.sets[set] = &memory{}
	}
	return m.sets[set]
}

// forget frees what was kept of a set whose run has ended.
func (m *memories) forget(set types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sets, set)
}
