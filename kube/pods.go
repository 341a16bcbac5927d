package kube

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

// Pods finds cached pods by a set injected into them, without walking or
// copying all the others.
type Pods struct {
	informer toolscache.SharedIndexInformer
}

// IndexPods adds the index to the cache of pods. It must be called before the cache
// starts.
func IndexPods(ctx context.Context, informers cache.Cache) (*Pods, error) {
	informer, err := informers.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("watch pods: the cache keeps them in a %T, which cannot be indexed", informer)
	}
	err = shared.AddIndexers(toolscache.Indexers{injectedSetIndex: func(o any) ([]string, error) {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("the pod cache holds a %T", o)
		}
		return record.InjectedSets(pod.Annotations), nil
	}})
	if err != nil {
		return nil, fmt.Errorf("index pods by injected set: %w", err)
	}
	return &Pods{informer: shared}, nil
}

// Of lists the pods that a set was injected into. They are the cache's own:
// copy before changing one.
func (p *Pods) Of(set string) ([]*corev1.Pod, error) {
	found, err := p.informer.GetIndexer().ByIndex(injectedSetIndex, set)
	if err != nil {
		return nil, fmt.Errorf("list pods of SidecarSet %s: %w", set, err)
	}
	pods := make([]*corev1.Pod, 0, len(found))
	for _, o := range found {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// All lists every cached pod. They are the cache's own: copy before changing one.
func (p *Pods) All() []*corev1.Pod {
	found := p.informer.GetIndexer().List()
	pods := make([]*corev1.Pod, 0, len(found))
	for _, o := range found {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// Shows reports whether the cache shows all that was written up to a resourceVersion of
// pods. It may say no for a while although it does: only a change of a pod, or a bookmark,
// tells it how recent it is.
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
