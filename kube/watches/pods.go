package watches

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/outrigger/outrigger/internal/record"
)

const injectedSetIndex = "injected-set"

// Pods finds cached pods by their namespace, and, through an index, by an injected SidecarSet.
type Pods struct {
	informer toolscache.SharedIndexInformer
}

// IndexPods adds the index to the cache of pods. Call IndexPods before the cache starts.
func IndexPods(ctx context.Context, informers cache.Cache) (*Pods, error) {
	informer, err := informers.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("watch pods: a %T cannot be indexed", informer)
	}
	err = shared.AddIndexers(toolscache.Indexers{injectedSetIndex: func(o any) ([]string, error) {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("the pod cache contains a %T", o)
		}
		return record.InjectedSets(pod.Annotations), nil
	}})
	if err != nil {
		return nil, fmt.Errorf("index pods by injected SidecarSet: %w", err)
	}
	return &Pods{informer: shared}, nil
}

// Of lists the cached pods into which a SidecarSet was injected. Copy a pod before you change it, because the
// cache owns the pod.
func (p *Pods) Of(set string) ([]*corev1.Pod, error) {
	found, err := p.informer.GetIndexer().ByIndex(injectedSetIndex, set)
	if err != nil {
		return nil, fmt.Errorf("list pods of SidecarSet %s: %w", set, err)
	}
	return podsOf(found), nil
}

// In lists the cached pods of a namespace. If namespace is empty, In lists the pods of all
// namespaces. Copy a pod before you change it, because the cache owns the pod.
func (p *Pods) In(namespace string) ([]*corev1.Pod, error) {
	if namespace == "" {
		return podsOf(p.informer.GetIndexer().List()), nil
	}
	found, err := p.informer.GetIndexer().ByIndex(toolscache.NamespaceIndex, namespace)
	if err != nil {
		return nil, fmt.Errorf("list pods of namespace %s: %w", namespace, err)
	}
	return podsOf(found), nil
}

func podsOf(found []any) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(found))
	for _, o := range found {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// Shows reports whether the cache contains all writes up to a resourceVersion of pods. Shows may
// return false although the cache is current, because only a changed pod or a bookmark updates the
// resourceVersion of the cache.
func (p *Pods) Shows(resourceVersion string) (bool, error) {
	newest := p.informer.LastSyncResourceVersion()
	if newest == "" {
		return false, nil
	}
	order, err := resourceversion.CompareResourceVersion(newest, resourceVersion)
	if err != nil {
		return false, fmt.Errorf("compare the resourceVersion of cached pods: %w", err)
	}
	return order >= 0, nil
}
