package operator

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
)

// freezes reads the RolloutFreezes from the cache. An older installation may lack the CustomResourceDefinition
// of RolloutFreezes, or the permission to list RolloutFreezes. In this case, list returns no freezes until the
// operator can list RolloutFreezes. The worker enforces freezes independently of the operator.
type freezes struct {
	client.Reader
	served atomic.Bool
}

// watch adds the watch of RolloutFreezes to c once the operator can list RolloutFreezes. Before that, the
// watch would never sync, and the operator would not start.
func (f *freezes) watch(ctx context.Context, mgr *kube.Manager, c controller.Controller, sets *setLister) error {
	err := mgr.Direct.List(ctx, &outriggerv1.RolloutFreezeList{}, client.Limit(1))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		mgr.GetLogger().Info("status shows no freezes: the CustomResourceDefinition of RolloutFreezes or the permission to list them is missing; apply config/crd and config/rbac", "cause", err.Error())
		return kube.Later(mgr, func(ctx context.Context) (bool, error) {
			if err := mgr.Direct.List(ctx, &outriggerv1.RolloutFreezeList{}, client.Limit(1)); err != nil {
				return false, nil
			}
			return true, f.start(ctx, mgr, c, sets)
		})
	}
	if err != nil {
		return fmt.Errorf("list RolloutFreezes: %w", err)
	}
	return f.start(ctx, mgr, c, sets)
}

func (f *freezes) start(ctx context.Context, mgr *kube.Manager, c controller.Controller, sets *setLister) error {
	if _, err := mgr.GetCache().GetInformer(ctx, &outriggerv1.RolloutFreeze{}); err != nil {
		return fmt.Errorf("watch RolloutFreezes: %w", err)
	}
	f.served.Store(true)
	if err := c.Watch(source.Kind(mgr.GetCache(), &outriggerv1.RolloutFreeze{}, freezeEvents(sets))); err != nil {
		return fmt.Errorf("set up the watch of RolloutFreezes: %w", err)
	}
	return nil
}

// list returns the RolloutFreezes from the cache. Callers must not change these objects.
func (f *freezes) list(ctx context.Context) ([]outriggerv1.RolloutFreeze, error) {
	if !f.served.Load() {
		return nil, nil
	}
	var all outriggerv1.RolloutFreezeList
	if err := f.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list RolloutFreezes from the cache: %w", err)
	}
	return all.Items, nil
}

func freezeEvents(sets *setLister) handler.TypedFuncs[*outriggerv1.RolloutFreeze, reconcile.Request] {
	enqueue := func(ctx context.Context, q queue, states ...*outriggerv1.RolloutFreeze) {
		sets.enqueue(ctx, q, func(set *v1alpha1.SidecarSet) bool {
			for _, freeze := range states {
				if stage.Freezes(freeze, set) {
					return true
				}
			}
			return false
		})
	}
	return handler.TypedFuncs[*outriggerv1.RolloutFreeze, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*outriggerv1.RolloutFreeze], q queue) {
			enqueue(ctx, q, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*outriggerv1.RolloutFreeze], q queue) {
			enqueue(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*outriggerv1.RolloutFreeze], q queue) {
			enqueue(ctx, q, e.Object)
		},
	}
}
