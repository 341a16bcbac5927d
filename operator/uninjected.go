package operator

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/kube"
)

// uninjectedPods match a set but were not injected: they are older than the set, or were
// admitted while the webhook was not called. Nothing else shows them.
type uninjectedPods struct {
	count   int
	example string
}

// uninjectedCache keeps what was found for each set until an event about its namespaces,
// or about a pod that it selects and lacks, so that other events cost no scan of all pods.
type uninjectedCache struct {
	mu   sync.Mutex
	sets map[string]*cachedUninjected
}

type cachedUninjected struct {
	uid        types.UID
	generation int64
	found      uninjectedPods
	// events so far; those after the scan make it out of date.
	events, scanned int
}

func newUninjectedCache() *uninjectedCache {
	return &uninjectedCache{sets: map[string]*cachedUninjected{}}
}

func (c *uninjectedCache) invalidate(set string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(set).events++
}

func (c *uninjectedCache) forget(set string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sets, set)
}

func (c *uninjectedCache) of(set string) *cachedUninjected {
	if c.sets[set] == nil {
		c.sets[set] = &cachedUninjected{events: 1} // nothing was scanned
	}
	return c.sets[set]
}

// find returns what the last scan found, or scans.
func (c *uninjectedCache) find(set *v1alpha1.SidecarSet, scan func() (uninjectedPods, error)) (uninjectedPods, error) {
	c.mu.Lock()
	cached := *c.of(set.Name)
	c.mu.Unlock()
	if cached.uid == set.UID && cached.generation == set.Generation && cached.scanned == cached.events {
		return cached.found, nil
	}
	found, err := scan()
	if err != nil {
		return uninjectedPods{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.of(set.Name)
	entry.uid, entry.generation, entry.found, entry.scanned = set.UID, set.Generation, found, cached.events
	return found, nil
}

// findUninjected finds them among the pods for which the webhook is called.
func (r *reconciler) findUninjected(ctx context.Context, set *v1alpha1.SidecarSet) (uninjectedPods, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil || set.Spec.InjectionStrategy.Paused {
		return uninjectedPods{}, err
	}
	return r.uninjected.find(set, func() (uninjectedPods, error) { return r.scanUninjected(ctx, set, scope) })
}

func (r *reconciler) scanUninjected(ctx context.Context, set *v1alpha1.SidecarSet, scope match.Scope) (uninjectedPods, error) {
	var found uninjectedPods
	covered := r.covers(ctx, scope)
	for _, pod := range r.pods.All() {
		if !scope.Labels(pod.Labels) || !match.Active(pod) || match.Critical(pod) || record.Injected(pod.Annotations, set.Name) {
			continue
		}
		if in, err := covered(pod.Namespace); err != nil {
			return uninjectedPods{}, err
		} else if !in {
			continue
		}
		found.count++
		if name := pod.Namespace + "/" + pod.Name; found.example == "" || name < found.example {
			found.example = name
		}
	}
	return found, nil
}

// covers returns a function that reports whether the webhook is called for the pods of a
// namespace, and the set selects that.
func (r *reconciler) covers(ctx context.Context, scope match.Scope) func(string) (bool, error) {
	labels, known := kube.NamespaceLabels(ctx, r.client), map[string]bool{}
	return func(namespace string) (bool, error) {
		if in, ok := known[namespace]; ok {
			return in, nil
		}
		found, err := labels(namespace)
		if err != nil {
			return false, fmt.Errorf("look up namespace %s: %w", namespace, err)
		}
		known[namespace] = scope.Covers(namespace, found, r.namespace)
		return known[namespace], nil
	}
}
