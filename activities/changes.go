package activities

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
)

// Changes wakes activities that wait for a change of a SidecarSet or its pods. The zero value is
// ready for use.
type Changes struct {
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// Next returns a channel that is closed at the next change of the SidecarSet or its pods.
func (c *Changes) Next(set string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[string]chan struct{}{}
	}
	if c.waiting[set] == nil {
		c.waiting[set] = make(chan struct{})
	}
	return c.waiting[set]
}

func (c *Changes) wake(sets ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, set := range sets {
		if changed, waited := c.waiting[set]; waited {
			close(changed)
			delete(c.waiting, set)
		}
	}
}

func (c *Changes) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, changed := range c.waiting {
		close(changed)
	}
	clear(c.waiting)
}

// Watch adds event handlers for pods, SidecarSets and namespaces. The handlers wake waiting activities, mark the
// counts of the cluster-wide limit as outdated, queue deleted SidecarSets for CleanUp, and release the cached
// state of SidecarSets that are gone or rolled out.
func (a *Activities) Watch(ctx context.Context, informers cache.Cache) error {
	for kind, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&corev1.Pod{}: eachState(func(o any) {
			if pod, ok := o.(*corev1.Pod); ok {
				sets := record.InjectedSets(pod.Annotations)
				a.Limit.mark(sets...)
				a.Changes.wake(sets...)
			}
		}),
		&v1alpha1.SidecarSet{}: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    a.setAdded,
			UpdateFunc: a.setUpdated,
			DeleteFunc: a.setDeleted,
		},
		&corev1.Namespace{}: eachState(func(any) { a.Changes.wakeAll() }),
	} {
		informer, err := informers.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

// setChanged wakes the activities that wait for a change of the SidecarSet. If no rollout of the SidecarSet
// is in progress, setChanged also removes the pods of the SidecarSet from the cache of populations. A later
// plan adds the pods again.
func (a *Activities) setChanged(o any) {
	set, ok := o.(*v1alpha1.SidecarSet)
	if !ok {
		return
	}
	if meta.IsStatusConditionFalse(set.Status.Conditions, v1alpha1.ConditionProgressing) {
		a.populations.Forget(set.Name)
	}
	a.Changes.wake(set.Name)
}

// setAdded adds the SidecarSet to the cluster-wide limit, and calls setChanged.
func (a *Activities) setAdded(o any) {
	if set, ok := o.(*v1alpha1.SidecarSet); ok {
		a.Limit.add(set.Name)
	}
	a.setChanged(o)
}

// setUpdated calls setChanged. If GoodRevisions or ResizableHashes have changed, setUpdated also marks the count
// of the SidecarSet as outdated, because these fields of status determine which unavailable pods count (SPEC
// 7.5.5).
func (a *Activities) setUpdated(before, after any) {
	was, ok := before.(*v1alpha1.SidecarSet)
	is, same := after.(*v1alpha1.SidecarSet)
	if ok && same && (!slices.Equal(was.Status.GoodRevisions, is.Status.GoodRevisions) || !slices.Equal(was.Status.ResizableHashes, is.Status.ResizableHashes)) {
		a.Limit.add(is.Name)
	}
	a.setChanged(after)
}

func (a *Activities) setDeleted(o any) {
	if set, ok := lastState(o).(*v1alpha1.SidecarSet); ok {
		a.populations.Forget(set.Name)
		a.health.Forget(set.Name)
		a.Changes.wake(set.Name)
		if a.Deleted != nil {
			a.Deleted.Add(set.Name)
		}
	}
}

// eachState returns an event handler that calls handle with each state of an object. For an update, the
// handler calls handle with the old state and with the new state.
func eachState(handle func(any)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: handle,
		UpdateFunc: func(before, after any) {
			handle(before)
			handle(after)
		},
		DeleteFunc: func(o any) { handle(lastState(o)) },
	}
}

// lastState returns the last known state of the deleted object of an event, even if the watch missed the
// deletion.
func lastState(o any) any {
	if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return o
}
