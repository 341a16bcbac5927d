package activities

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
)

// Changes wakes whoever waits for something about a set to move.
type Changes struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]struct{}
}

// NewChanges has nobody waiting.
func NewChanges() *Changes {
	return &Changes{waiting: map[string]map[chan struct{}]struct{}{}}
}

// Wait returns a channel that holds a token after each change about the set,
// and a function that ends the waiting.
func (c *Changes) Wait(set string) (<-chan struct{}, func()) {
	woken := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[set] == nil {
		c.waiting[set] = map[chan struct{}]struct{}{}
	}
	c.waiting[set][woken] = struct{}{}
	return woken, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting[set], woken)
		if len(c.waiting[set]) == 0 {
			delete(c.waiting, set)
		}
	}
}

func (c *Changes) wake(sets ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, set := range sets {
		for woken := range c.waiting[set] {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	}
}

func (c *Changes) wakeAll() {
	c.mu.Lock()
	sets := make([]string, 0, len(c.waiting))
	for set := range c.waiting {
		sets = append(sets, set)
	}
	c.mu.Unlock()
	c.wake(sets...)
}

// Watch follows the cache's pods, sets and namespaces.
func (c *Changes) Watch(ctx context.Context, informers cache.Cache) error {
	for kind, tell := range map[client.Object]func(any){
		&corev1.Pod{}: func(o any) {
			if pod, ok := o.(*corev1.Pod); ok {
				c.wake(record.InjectedSets(pod.Annotations)...)
			}
		},
		&v1alpha1.SidecarSet{}: func(o any) {
			if set, ok := o.(*v1alpha1.SidecarSet); ok {
				c.wake(set.Name)
			}
		},
		&corev1.Namespace{}: func(any) { c.wakeAll() },
	} {
		informer, err := informers.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(handler(tell)); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

func handler(tell func(any)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: tell,
		UpdateFunc: func(before, after any) {
			tell(before)
			tell(after)
		},
		DeleteFunc: func(o any) {
			if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			tell(o)
		},
	}
}
