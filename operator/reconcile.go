package operator

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube/watches"
)

// step is one step of a reconcile.
type step interface {
	reconcile(context.Context, *pass) error
	// forget removes the state of a deleted SidecarSet.
	forget(name string)
}

type reconciler struct {
	client  client.Reader
	pods    *watches.Pods
	limiter *enqueueLimiter
	clock   clock.PassiveClock
	// current returns an error while the cache of SidecarSets and pods is stale.
	current func() error
	steps   []step
}

// steps returns the steps in the order of their execution. A step reads the results of earlier
// steps.
func steps(revisions *revisionStep, population *populationStep, injection *injectionStep, run *runStep, status *statusStep) []step {
	return []step{
		revisions,  // register the content as the newest revision
		population, // plan the rollout
		injection,  // find matching pods without the sidecars
		run,        // start the run of each generation, and signal the run
		status,     // write status with its conditions, and record events
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.limiter.recordReconcile(request.Name, r.clock.Now())
	if err := r.current(); err != nil {
		log.FromContext(ctx).V(1).Info("not deciding from a stale cache", "cause", err.Error())
		return reconcile.Result{RequeueAfter: minReconcileInterval}, nil
	}
	result, err := r.reconcile(ctx, request.Name)
	if apierrors.IsConflict(err) {
		// The cache does not contain the last write yet, so the SidecarSet is requeued.
		return reconcile.Result{RequeueAfter: minReconcileInterval}, nil
	}
	return result, err
}

func (r *reconciler) reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	p, err := r.begin(ctx, name)
	if p == nil || err != nil {
		return reconcile.Result{}, err
	}
	for _, step := range r.steps {
		if err := step.reconcile(ctx, p); err != nil || p.ended {
			return p.requeue(), errors.Join(err, p.invalid, p.revisionsErr)
		}
	}
	return p.requeue(), errors.Join(p.invalid, p.out.err, p.revisionsErr)
}

// begin reads the SidecarSet and the pods that list the SidecarSet as injected. begin returns nil if the
// SidecarSet does not exist or is being deleted.
func (r *reconciler) begin(ctx context.Context, name string) (*pass, error) {
	set := &v1alpha1.SidecarSet{}
	if err := r.client.Get(ctx, types.NamespacedName{Name: name}, set); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(name)
			return nil, nil
		}
		return nil, fmt.Errorf("read SidecarSet %s: %w", name, err)
	}
	if set.DeletionTimestamp != nil {
		// The state is removed now, because a finalizer may keep the SidecarSet for a long time.
		r.forget(name)
		return nil, nil
	}
	completed, err := revision.Completed(set)
	if err != nil {
		return nil, err
	}
	pods, err := r.pods.Of(name)
	if err != nil {
		return nil, err
	}
	p := &pass{before: completed.DeepCopy(), set: completed, pods: pods, now: r.clock.Now()}
	p.outdatedHashes = !revision.HaveOwnHashes(set, completed)
	if completed.Status.Rollout != nil {
		p.pause = completed.Status.Rollout.Pause
	}
	return p, nil
}

func (r *reconciler) forget(name string) {
	r.limiter.forget(name)
	for _, step := range r.steps {
		step.forget(name)
	}
}
