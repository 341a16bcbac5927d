package operator

import (
	"context"
	"fmt"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
)

// maxRunChanges is the maximum number of changed runs that wait for the controller. If more runs change, the
// operator reads each further run at the next check of the run.
const maxRunChanges = 1024

// runChanges contains the SidecarSets whose run has changed. The operator reads a changed run immediately,
// instead of at the next periodic check.
type runChanges struct {
	requeues chan event.GenericEvent
	names    sync.Map
}

func newRunChanges() *runChanges {
	return &runChanges{requeues: make(chan event.GenericEvent, maxRunChanges)}
}

// add requeues a SidecarSet, so that its reconcile reads the run.
func (c *runChanges) add(set string) {
	c.names.Store(set, true)
	select {
	case c.requeues <- event.GenericEvent{Object: &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: set}}}:
	default:
	}
}

// take reports whether the run of a SidecarSet has changed since the last call of take.
func (c *runChanges) take(set string) bool {
	_, changed := c.names.LoadAndDelete(set)
	return changed
}

// watch adds each SidecarSet for which a worker reports a new stage in the Lease of the run. Without
// permission to watch Leases, the operator reads the stage at the next periodic check of the run.
func (c *runChanges) watch(ctx context.Context, mgr *kube.Manager, namespace string) error {
	watched, err := kube.OptionalCache(mgr, coordinationv1.SchemeGroupVersion.WithKind("Lease"), namespace)
	if err != nil {
		return err
	}
	informer, err := watched.GetInformer(ctx, &coordinationv1.Lease{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(c.leaseEvents())
	}
	if err != nil {
		return fmt.Errorf("watch Leases in %s: %w", namespace, err)
	}
	return nil
}

func (c *runChanges) leaseEvents() toolscache.ResourceEventHandler {
	changed := func(before string, lease *coordinationv1.Lease) {
		set, ofRollout := strings.CutPrefix(lease.Name, v1alpha1.RolloutLeasePrefix)
		if ofRollout && lease.Annotations[v1alpha1.StageChangedAnnotation] != before {
			c.add(set)
		}
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(added any, initial bool) {
			if lease, ok := added.(*coordinationv1.Lease); ok && !initial {
				changed("", lease)
			}
		},
		UpdateFunc: func(old, updated any) {
			before, known := old.(*coordinationv1.Lease)
			if lease, ok := updated.(*coordinationv1.Lease); ok && known {
				changed(before.Annotations[v1alpha1.StageChangedAnnotation], lease)
			}
		},
	}
}
