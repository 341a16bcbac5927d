package operator

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube"
)

// reconciler brings what the cluster and Temporal know of a SidecarSet in step
// with it.
type reconciler struct {
	client client.Client
	pods   *kube.Pods
	// live reads past the cache.
	live      client.Reader
	namespace string
	engine    *engine
	handovers *handovers
	events    events.EventRecorder
	meters    *meters
	now       func() time.Time

	memories rollout.Memories
}

// Reconcile registers the set's revision, writes its status, and hands its
// generation over. Status comes before Temporal, and does not wait for it.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.reconcile(ctx, request.Name)
	if apierrors.IsConflict(err) {
		// The cache lags behind a write; its event is on the way.
		return reconcile.Result{RequeueAfter: coalescing}, nil
	}
	return result, err
}

func (r *reconciler) reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	set := &v1alpha1.SidecarSet{}
	if err := r.client.Get(ctx, types.NamespacedName{Name: name}, set); err != nil {
		if apierrors.IsNotFound(err) {
			r.handovers.forget(name)
			r.memories.Forget(name)
			r.meters.withoutSidecar.DeleteLabelValues(name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read SidecarSet %s: %w", name, err)
	}
	if set.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	pods, err := r.pods.Of(name)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := set.DeepCopy()
	if err := r.registerRevision(ctx, set, pods); err != nil {
		return reconcile.Result{}, err
	}
	seen := r.observe(ctx, set, pods)
	seen.describe(&set.Status, set, r.now())
	if err := r.writeStatus(ctx, before, set); err != nil {
		return reconcile.Result{}, err
	}
	r.tell(set, announcements(before, set))
	if seen.invalid != nil {
		return reconcile.Result{}, seen.invalid
	}
	return r.handOver(ctx, set, seen)
}

// namespaceLabels reads the labels of a cached namespace.
func (r *reconciler) namespaceLabels(ctx context.Context) func(string) (map[string]string, error) {
	return func(name string) (map[string]string, error) {
		var namespace corev1.Namespace
		if err := r.client.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil {
			return nil, err
		}
		return namespace.Labels, nil
	}
}

// writeStatus writes the status of set unless it is the one before. set then
// holds the resourceVersion of the write.
func (r *reconciler) writeStatus(ctx context.Context, before, set *v1alpha1.SidecarSet) error {
	if sameStatus(&before.Status, &set.Status) {
		return nil
	}
	// A patch would leave out counts of zero, which the CRD requires.
	if err := r.client.Status().Update(ctx, set); err != nil {
		return fmt.Errorf("write the status of SidecarSet %s: %w", set.Name, err)
	}
	r.meters.statusWrites.Inc()
	return nil
}
