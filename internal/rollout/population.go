package rollout

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// Pod is a matched pod with its state relative to the version of a SidecarSet.
type Pod struct {
	*corev1.Pod
	podstate.State
	// InBackoff is set while a rejected upgrade of the pod waits for its retry.
	// ConditionInBackoff is set while a rejected write of the pod's condition waits for its
	// retry.
	InBackoff, ConditionInBackoff bool
	// Unhealthy is set by Health if the pod has not been ready for too long, or if its app restarted.
	Unhealthy Illness
	// Recovering is set by Health after a pod of the control group becomes ready again, for the duration
	// UnreadyFor of the step.
	Recovering bool
}

// Reference returns the namespace, the name and the UID of the pod.
func (p *Pod) Reference() protocol.PodReference {
	return protocol.PodReference{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID}
}

// Population returns the matched pods of a SidecarSet (SPEC §3). A matched pod is active, is in scope, is
// injected with the SidecarSet, and has every container of the SidecarSet. Population calls namespaceLabels only
// if the SidecarSet selects namespaces by label. If namespaceLabels fails, Population returns the error, because
// a result without the pods of the namespace would be wrong.
func Population(set *v1alpha1.SidecarSet, pods []*corev1.Pod, namespaceLabels func(string) (map[string]string, error)) ([]Pod, error) {
	return new(PopulationCache).Population(set, pods, namespaceLabels)
}

// PopulationCache keeps the states of the pods of each SidecarSet, so that a plan
// evaluates only the pods that changed. The zero value is ready for concurrent use.
type PopulationCache struct {
	records record.Reader

	mu   sync.Mutex
	sets map[string]*setCache
}

// setCache contains the states of pods relative to one version of a SidecarSet.
type setCache struct {
	mu         sync.Mutex
	uid        types.UID
	generation int64
	hash       string
	good       []v1alpha1.GoodRevision
	resizable  []string
	scope      match.Scope
	version    *podstate.Version
	states     map[types.UID]cachedState
}

type cachedState struct {
	// pod is the object that was evaluated. An informer replaces objects and never changes an object, so the
	// state is valid for this pointer.
	pod   *corev1.Pod
	state podstate.State
	// member is set if the pod is matched, provided that its namespace is in scope.
	member bool
	// unreadable is set if the annotations of a selected pod cannot be parsed.
	unreadable bool
}

// Population returns the same result as the function Population.
func (c *PopulationCache) Population(set *v1alpha1.SidecarSet, pods []*corev1.Pod, namespaceLabels func(string) (map[string]string, error)) ([]Pod, error) {
	matched, namespaces := make([]Pod, 0, len(pods)), namespacesInScope{labels: namespaceLabels, known: map[string]bool{}}
	err := c.visit(set, pods, func(scope match.Scope, cached cachedState) error {
		if !cached.member {
			return nil
		}
		in, err := namespaces.contain(scope, cached.pod.Namespace)
		if in {
			matched = append(matched, Pod{Pod: cached.pod, State: cached.state})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return matched, nil
}

// namespacesInScope caches which namespaces are in the scope of a SidecarSet.
type namespacesInScope struct {
	labels func(string) (map[string]string, error)
	known  map[string]bool
}

func (n *namespacesInScope) contain(scope match.Scope, namespace string) (in bool, err error) {
	in, known := n.known[namespace]
	if known {
		return in, nil
	}
	var labels map[string]string
	if scope.NeedsNamespaceLabels() {
		if labels, err = n.labels(namespace); err != nil {
			return false, fmt.Errorf("look up namespace %s: %w", namespace, err)
		}
	}
	in = scope.Namespace(namespace, labels)
	n.known[namespace] = in
	return in, nil
}

// CountUnavailable counts the pods that in-place upgrades of a SidecarSet made unavailable (SPEC §7.5),
// including pods that the newest version of the SidecarSet does not match. A pod that was created with its
// version does not count. newest is the number of these pods that are updated.
func (c *PopulationCache) CountUnavailable(set *v1alpha1.SidecarSet, pods []*corev1.Pod) (all, newest int, err error) {
	err = c.visit(set, pods, func(_ match.Scope, cached cachedState) error {
		if (cached.state.UpgradedInPlace || cached.state.ResizeRestarts) && cached.state.UnavailableByUpgrade() {
			all++
			if cached.state.Updated {
				newest++
			}
		}
		return nil
	})
	return all, newest, err
}

// UnreadablePods describes the pods with annotations that cannot be parsed. Example is the first
// such pod by name. Cause is the error about this pod.
type UnreadablePods struct {
	Count   int
	Example string
	Cause   error
}

// Unreadable returns the pods that would be matched if their annotations could be parsed.
func (c *PopulationCache) Unreadable(set *v1alpha1.SidecarSet, pods []*corev1.Pod, namespaceLabels func(string) (map[string]string, error)) (unreadable UnreadablePods, err error) {
	namespaces := namespacesInScope{labels: namespaceLabels, known: map[string]bool{}}
	err = c.visit(set, pods, func(scope match.Scope, cached cachedState) error {
		if !cached.unreadable {
			return nil
		}
		in, err := namespaces.contain(scope, cached.pod.Namespace)
		if apierrors.IsNotFound(err) {
			return nil // The pod is never upgraded, so its missing namespace does not stop the other pods.
		}
		if !in {
			return err
		}
		unreadable.Count++
		if name := cached.pod.Namespace + "/" + cached.pod.Name; unreadable.Count == 1 || name < unreadable.Example {
			unreadable.Example = name
			_, unreadable.Cause = c.records.Read(cached.pod.Annotations)
		}
		return nil
	})
	return unreadable, err
}

// Forget frees the cached states of a SidecarSet that is deleted or currently needs no plan.
func (c *PopulationCache) Forget(set string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sets, set)
}

func (c *PopulationCache) of(set string) *setCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sets == nil {
		c.sets = map[string]*setCache{}
	}
	if c.sets[set] == nil {
		c.sets[set] = &setCache{}
	}
	return c.sets[set]
}

// visit calls f with the state of each pod, until f returns an error.
func (c *PopulationCache) visit(set *v1alpha1.SidecarSet, pods []*corev1.Pod, f func(match.Scope, cachedState) error) error {
	one := c.of(set.Name)
	one.mu.Lock()
	defer one.mu.Unlock()
	if err := one.update(set, len(pods)); err != nil {
		return err
	}
	for _, pod := range pods {
		cached := one.states[pod.UID]
		if cached.pod != pod {
			cached = one.evaluate(&c.records, set.Name, pod)
			one.states[pod.UID] = cached
		}
		if err := f(one.scope, cached); err != nil {
			return fmt.Errorf("SidecarSet %s: %w", set.Name, err)
		}
	}
	return nil
}

// update compiles the scope and the version, and drops all states, if the version has changed, or if most of the
// states belong to deleted pods. The content changes only with the generation, and the hashed form of the content
// changes only with the annotation, so update need not compute hashes for each plan.
func (c *setCache) update(set *v1alpha1.SidecarSet, pods int) error {
	hash, good, resizable := set.Annotations[v1alpha1.HashAnnotation], set.Status.GoodRevisions, set.Status.ResizableHashes
	if c.version != nil && c.uid == set.UID && c.generation == set.Generation && c.hash == hash &&
		slices.Equal(c.good, good) && slices.Equal(c.resizable, resizable) && len(c.states) <= 2*pods {
		return nil
	}
	c.version = nil // After an error, the next call compiles the version and the scope again.
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return err
	}
	c.scope, c.version = scope, version
	c.uid, c.generation, c.hash, c.good = set.UID, set.Generation, hash, slices.Clone(good)
	c.resizable = slices.Clone(resizable)
	c.states = make(map[types.UID]cachedState, pods)
	return nil
}

func (c *setCache) evaluate(records *record.Reader, set string, pod *corev1.Pod) cachedState {
	fresh := cachedState{pod: pod}
	if !match.Active(pod) || !record.Injected(pod.Annotations, set) {
		return fresh
	}
	read, err := records.Read(pod.Annotations)
	switch {
	case err == nil:
		fresh.state = c.version.OfRecord(pod, read)
		fresh.member = fresh.state.Complete && c.scope.Labels(pod.Labels)
	case c.scope.Labels(pod.Labels):
		// The error does not affect other pods. A pod with damaged annotations is not managed until the
		// annotations are repaired.
		fresh.unreadable = true
	}
	return fresh
}
