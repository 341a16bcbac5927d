package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube"
)

// reconciler reconciles the revisions, the run and the status of a SidecarSet.
type reconciler struct {
	client client.Client
	pods   *kube.Pods
	// live reads past the cache.
	live      client.Reader
	namespace string
	rollouts  *rolloutClient
	runStates *runStates
	limiter   *enqueueLimiter
	// mismatches are sets whose runs were found to work on another generation.
	mismatches *nameSet
	recorder   events.EventRecorder
	metrics    *metrics
	clock      clock.PassiveClock
	// current returns an error while the cache of sets and pods is stale.
	current func() error

	populations rollout.PopulationCache
	uninjected  *uninjectedCache
}

// statusTimeout is how long a write of status waits for Temporal.
const statusTimeout = time.Second

// Reconcile registers the set's revision, starts its rollout, keeps its run going, and
// writes its status.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.limiter.recordReconcile(request.Name, r.clock.Now())
	if err := r.current(); err != nil {
		log.FromContext(ctx).V(1).Info("not deciding from a stale cache", "cause", err.Error())
		return reconcile.Result{RequeueAfter: minReconcileInterval}, nil
	}
	result, err := r.reconcile(ctx, request.Name)
	if apierrors.IsConflict(err) {
		// The cache lags behind a write; its event is on the way.
		return reconcile.Result{RequeueAfter: minReconcileInterval}, nil
	}
	return result, err
}

func (r *reconciler) reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	set := &v1alpha1.SidecarSet{}
	if err := r.client.Get(ctx, types.NamespacedName{Name: name}, set); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(name)
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
	if seen.invalid != nil {
		return reconcile.Result{}, errors.Join(r.publish(ctx, before, set, &seen, outcome{}), seen.invalid)
	}
	return r.reconcileRunAndStatus(ctx, before, set, &seen)
}

// reconcileRunAndStatus writes status after the calls to Temporal, so that it shows
// their outcome. If they take longer than statusTimeout, it writes status twice: before
// they return, and after.
func (r *reconciler) reconcileRunAndStatus(ctx context.Context, before, set *v1alpha1.SidecarSet, seen *observation) (reconcile.Result, error) {
	state := r.runStates.of(set)
	state.observeGeneration(set.Generation, r.clock.Now())
	delay := r.countsDelay(set, seen, state)
	early := outcome{fault: state.fault}
	outcomes := make(chan outcome, 1)
	go func(set *v1alpha1.SidecarSet, seen observation) { outcomes <- r.reconcileRun(ctx, set, &seen, state) }(set.DeepCopy(), *seen)

	short, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var out outcome
	select {
	case out = <-outcomes:
	case <-short.Done():
		err := r.publish(ctx, before, set, seen, early)
		out = <-outcomes
		if err != nil {
			return reconcile.Result{}, err
		}
		before, delay = set.DeepCopy(), 0
	}
	if delay > 0 && out.err == nil && !r.rollouts.unreachable() {
		return reconcile.Result{RequeueAfter: delay}, nil
	}
	seen.temporal = r.rollouts.awaitProbe(ctx)
	if err := r.publish(ctx, before, set, seen, out); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: out.requeueAfter}, out.err
}

// countsDelay is how long the counts of a new generation are withheld while pods that
// it cannot upgrade do not have their condition yet, so that status is not ahead of
// them (SPEC §8.1).
func (r *reconciler) countsDelay(set *v1alpha1.SidecarSet, seen *observation, state *runState) time.Duration {
	if set.Status.ObservedGeneration == set.Generation || seen.hold != nil || !seen.upgradableConditionPending() {
		return 0
	}
	return state.observedAt.Add(statusTimeout).Sub(r.clock.Now())
}

// publish writes the status, and records events for what has changed in it.
func (r *reconciler) publish(ctx context.Context, before, set *v1alpha1.SidecarSet, seen *observation, out outcome) error {
	if out.started {
		id := protocol.WorkflowID(set.Name, set.UID)
		set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: set.Generation, WorkflowID: id, URL: r.rollouts.url(id), Hold: seen.hold}
	}
	if out.holdKnown {
		seen.hold = out.hold
		set.Status.Rollout.Hold = out.hold
	}
	seen.fault = out.fault
	r.metrics.rollouts.observe(set, seen)
	seen.describe(&set.Status, set, r.clock.Now())
	if err := r.writeStatus(ctx, before, set); err != nil {
		// A set that was deleted meanwhile needs none; the event is on the way.
		return client.IgnoreNotFound(err)
	}
	r.record(set, eventsFor(before, set, out.resumed))
	r.record(set, out.events)
	return nil
}

func (r *reconciler) forget(name string) {
	r.runStates.forget(name)
	r.limiter.forget(name)
	r.populations.Forget(name)
	r.uninjected.forget(name)
	r.metrics.withoutSidecar.DeleteLabelValues(name)
	r.metrics.rollouts.forget(name)
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
	r.metrics.statusWrites.Inc()
	return nil
}
