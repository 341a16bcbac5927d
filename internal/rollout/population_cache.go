package rollout

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// PopulationCache keeps the state of each set's pods, so that a plan evaluates
// only those that changed. The zero value is ready for use, also concurrently.
type PopulationCache struct {
	records record.Reader

	mu   sync.Mutex
	sets map[string]*lockedSetCache
}

type lockedSetCache struct {
	mu    sync.Mutex
	cache setCache
}

// Population is the function of the same name.
func (c *PopulationCache) Population(set *v1alpha1.SidecarSet, pods []*corev1.Pod, namespaceLabels func(string) (map[string]string, error)) ([]Pod, error) {
	one := c.of(set.Name)
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.cache.population(set, pods, namespaceLabels)
}

// Moving counts the pods that in-place upgrades of a set made unavailable (SPEC
// §7.5), also those that its newest version does not match any more. Pods that were
// created with a version do not count.
func (c *PopulationCache) Moving(set *v1alpha1.SidecarSet, pods []*corev1.Pod) (int, error) {
	one := c.of(set.Name)
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.cache.moving(set, pods)
}

func (c *PopulationCache) of(set string) *lockedSetCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sets == nil {
		c.sets = map[string]*lockedSetCache{}
	}
	if c.sets[set] == nil {
		c.sets[set] = &lockedSetCache{cache: setCache{records: &c.records}}
	}
	return c.sets[set]
}

// Forget frees what is cached of a set that is gone, or needs no plan for now.
func (c *PopulationCache) Forget(set string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sets, set)
}

// setCache holds the states of one set's pods towards one version of it. It is
// not for concurrent use.
type setCache struct {
	records    *record.Reader
	uid        types.UID
	generation int64
	hash       string
	states     map[types.UID]cachedState
}

type cachedState struct {
	// pod is the object that was evaluated: informers replace objects, and
	// never change them.
	pod   *corev1.Pod
	state podstate.State
	// member reports whether the pod is matched if its namespace is in scope.
	member bool
}

// moving reports whether an in-place upgrade made the pod unavailable.
func (s cachedState) moving() bool { return s.state.Touched && s.state.InFlight() }

func (c *setCache) population(set *v1alpha1.SidecarSet, pods []*corev1.Pod, namespaceLabels func(string) (map[string]string, error)) ([]Pod, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	c.invalidate(set, len(pods))
	inScope := namespaceFilter(scope, namespaceLabels)
	matched := make([]Pod, 0, len(pods))
	for _, pod := range pods {
		cached := c.state(set.Name, scope, version, pod)
		if !cached.member {
			continue
		}
		if in, err := inScope(pod.Namespace); err != nil {
			return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
		} else if in {
			matched = append(matched, Pod{Pod: pod, State: cached.state})
		}
	}
	return matched, nil
}

func (c *setCache) moving(set *v1alpha1.SidecarSet, pods []*corev1.Pod) (n int, err error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return 0, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return 0, err
	}
	c.invalidate(set, len(pods))
	for _, pod := range pods {
		if c.state(set.Name, scope, version, pod).moving() {
			n++
		}
	}
	return n, nil
}

// invalidate drops the states towards another version, and those of pods that
// are gone once they are the larger part.
func (c *setCache) invalidate(set *v1alpha1.SidecarSet, pods int) {
	hash := set.Annotations[v1alpha1.HashAnnotation]
	if c.uid != set.UID || c.generation != set.Generation || c.hash != hash || len(c.states) > 2*pods {
		*c = setCache{records: c.records, uid: set.UID, generation: set.Generation, hash: hash, states: make(map[types.UID]cachedState, pods)}
	}
}

func (c *setCache) state(set string, scope match.Scope, version *podstate.Version, pod *corev1.Pod) cachedState {
	if cached, ok := c.states[pod.UID]; ok && cached.pod == pod {
		return cached
	}
	fresh := cachedState{pod: pod}
	if match.Active(pod) && record.Injected(pod.Annotations, set) {
		// A pod whose annotations cannot be read stops nobody else: it is
		// not managed until somebody mends it.
		if read, err := c.records.Read(pod.Annotations); err == nil {
			fresh.state = version.OfRecord(pod, read)
			fresh.member = fresh.state.Complete && scope.Labels(pod.Labels)
		}
	}
	c.states[pod.UID] = fresh
	return fresh
}
