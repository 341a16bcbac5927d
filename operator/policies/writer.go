// Package policies writes the status of RolloutPolicies.
package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
)

// interval is the time from an event to the next reconcile. All events during interval cause one reconcile.
const interval = time.Second

// Writer records in the status of each RolloutPolicy the SidecarSets to which the policy applies. A change of
// one policy can change the SidecarSets of all other policies, so each reconcile covers all policies.
type Writer struct {
	sets, policies client.Reader
	writer         client.Client
	evictions      Evictions
	metrics        *Metrics
	evicting       *Evicting
	// left contains, for each policy whose evictions were read, the names of the SidecarSets whose outdated pods
	// are never evicted.
	left map[types.UID][]string
	// woken contains, for each policy, the reasons of the last wake of the run.
	woken map[types.UID]wakeReasons
}

// wakeReasons contains a generation of a policy, and the SidecarSets with outdated pods.
type wakeReasons struct {
	generation int64
	outdated   []types.UID
}

// AddTo adds a Writer to a manager. If the CustomResourceDefinition of RolloutPolicies is not installed, the
// Writer is added after the installation.
func AddTo(mgr manager.Manager, direct client.Client, evictions Evictions, metrics *Metrics, evicting *Evicting) error {
	w := &Writer{sets: mgr.GetClient(), writer: direct, evictions: evictions, metrics: metrics, evicting: evicting, left: map[types.UID][]string{}, woken: map[types.UID]wakeReasons{}}
	installed, err := kube.WhenInstalled(mgr, outriggerv1.GroupVersion.WithKind("RolloutPolicy"), func(policies cache.Cache) error {
		return w.start(mgr, policies)
	})
	if err == nil && !installed {
		evicting.store(map[string]bool{})
		mgr.GetLogger().Info("RolloutPolicies are not installed, so no rollout has steps; to use them, apply config/crd")
	}
	return err
}

func (w *Writer) start(mgr manager.Manager, policies cache.Cache) error {
	w.policies = policies
	c, err := controller.New("rolloutpolicy", mgr, controller.Options{
		Reconciler: w, RateLimiter: kube.RateLimiter(), CacheSyncTimeout: math.MaxInt64,
	})
	if err != nil {
		return fmt.Errorf("set up the status of RolloutPolicies: %w", err)
	}
	// The UIDs are also compared, because a recreated policy may have the generation of the deleted policy.
	changed := predicate.TypedFuncs[*outriggerv1.RolloutPolicy]{UpdateFunc: func(e event.TypedUpdateEvent[*outriggerv1.RolloutPolicy]) bool {
		return e.ObjectOld.UID != e.ObjectNew.UID || e.ObjectOld.Generation != e.ObjectNew.Generation
	}}
	err = cmp.Or(
		c.Watch(source.Kind(policies, &outriggerv1.RolloutPolicy{}, all[*outriggerv1.RolloutPolicy](), changed)),
		c.Watch(source.Kind(mgr.GetCache(), &v1alpha1.SidecarSet{}, all[*v1alpha1.SidecarSet](), predicate.TypedLabelChangedPredicate[*v1alpha1.SidecarSet]{})))
	if err != nil {
		return fmt.Errorf("set up the status of RolloutPolicies: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// all returns the handler that enqueues one request for all policies. The queue keeps the earliest
// of several delayed requests.
func all[object client.Object]() handler.TypedFuncs[object, reconcile.Request] {
	enqueue := func(q queue) { q.AddAfter(reconcile.Request{}, interval) }
	return handler.TypedFuncs[object, reconcile.Request]{
		CreateFunc: func(_ context.Context, _ event.TypedCreateEvent[object], q queue) { enqueue(q) },
		UpdateFunc: func(_ context.Context, _ event.TypedUpdateEvent[object], q queue) { enqueue(q) },
		DeleteFunc: func(_ context.Context, _ event.TypedDeleteEvent[object], q queue) { enqueue(q) },
	}
}

// Reconcile implements reconcile.Reconciler.
func (w *Writer) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var policies outriggerv1.RolloutPolicyList
	if err := w.policies.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list RolloutPolicies: %w", err)
	}
	var sets v1alpha1.SidecarSetList
	if err := w.sets.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list SidecarSets: %w", err)
	}
	statuses, err := stage.Statuses(sets.Items, policies.Items)
	if err != nil {
		// A retry would fail again. The next change of a policy causes another reconcile.
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	applied, err := applied(sets.Items, policies.Items)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	result := w.readEvictions(ctx, applied, policies.Items, statuses, time.Now())
	evicting, err := evictingSets(sets.Items, policies.Items, statuses, w.left)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	w.evicting.store(evicting)
	var errs []error
	for i := range policies.Items {
		stored := &policies.Items[i]
		if stage.SameStatus(&stored.Status, &statuses[i]) {
			continue
		}
		policy := stored.DeepCopy()
		policy.Status = statuses[i]
		switch err := w.writer.Status().Update(ctx, policy); {
		case apierrors.IsConflict(err):
			// The cache does not contain the latest version of the policy yet.
			result.RequeueAfter = interval
		case client.IgnoreNotFound(err) != nil:
			errs = append(errs, fmt.Errorf("write the status of RolloutPolicy %s: %w", policy.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return reconcile.Result{}, err
	}
	return result, nil
}

// readEvictions adds the evictions to the statuses of the policies that evict pods. If at least one policy
// evicts pods, result requeues the request after evictionInterval.
func (w *Writer) readEvictions(ctx context.Context, applied map[string]appliedSets, policies []outriggerv1.RolloutPolicy, statuses []outriggerv1.RolloutPolicyStatus, now time.Time) (result reconcile.Result) {
	w.forget(policies)
	for i := range policies {
		policy := &policies[i]
		evictions, err := w.evictionsOf(ctx, policy, applied[policy.Name], now)
		statuses[i].Evictions = evictions
		if err != nil {
			log.FromContext(ctx).Info("the evictions of a RolloutPolicy are not known", "policy", policy.Name, "cause", err.Error())
		}
		if policy.Spec.Evicts() {
			result.RequeueAfter = evictionInterval
		}
	}
	w.metrics.observe(statuses)
	return result
}

// forget removes the entries of deleted policies.
func (w *Writer) forget(policies []outriggerv1.RolloutPolicy) {
	deleted := func(uid types.UID) bool {
		return !slices.ContainsFunc(policies, func(p outriggerv1.RolloutPolicy) bool { return p.UID == uid })
	}
	maps.DeleteFunc(w.left, func(uid types.UID, _ []string) bool { return deleted(uid) })
	maps.DeleteFunc(w.woken, func(uid types.UID, _ wakeReasons) bool { return deleted(uid) })
}
