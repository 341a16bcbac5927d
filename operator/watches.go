package operator

import (
	"context"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/record"
)

// minReconcileInterval is the shortest time between two reconciles of a set for events
// that only touch its status. Each of them walks all of the set's pods, and its write
// of status is a watch event for every watcher.
const minReconcileInterval = time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// sources are the watches that enqueue sets.
func sources(mgr manager.Manager, rollouts *rolloutClient, orphans *orphanCollector, sets *setLister) []source.Source {
	cache, limiter := mgr.GetCache(), sets.limiter
	return []source.Source{
		source.Kind(cache, &v1alpha1.SidecarSet{}, setEvents(sets, orphans.setDeleted)),
		source.Kind(cache, &corev1.Pod{}, podEvents(sets)),
		source.Kind(cache, &corev1.Namespace{}, namespaceEvents(sets)),
		source.Kind(cache, &appsv1.ControllerRevision{}, revisionEvents(limiter)),
		source.Channel(rollouts.changes, temporalEvents(sets)),
		source.Channel(orphans.requeues, handler.Funcs{GenericFunc: func(_ context.Context, e event.GenericEvent, q queue) {
			q.Add(request(e.Object.GetName()))
		}}),
	}
}

func setEvents(sets *setLister, deleted func(*v1alpha1.SidecarSet)) handler.TypedFuncs[*v1alpha1.SidecarSet, reconcile.Request] {
	return handler.TypedFuncs[*v1alpha1.SidecarSet, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1alpha1.SidecarSet], q queue) {
			sets.index(e.Object)
			q.Add(request(e.Object.Name))
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1alpha1.SidecarSet], q queue) {
			if e.ObjectOld.Generation != e.ObjectNew.Generation || e.ObjectOld.UID != e.ObjectNew.UID {
				sets.index(e.ObjectNew)
			}
			if e.ObjectOld.UID != e.ObjectNew.UID {
				// The deletion between the two was missed.
				deleted(e.ObjectOld)
			}
			// A change of the status alone is most likely our own write. The set is
			// enqueued all the same: the write may have been based on a status older
			// than the one it replaced.
			if statusAlone(e.ObjectOld, e.ObjectNew) {
				q.AddAfter(request(e.ObjectNew.Name), minReconcileInterval)
				return
			}
			q.Add(request(e.ObjectNew.Name))
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.SidecarSet], q queue) {
			deleted(e.Object)
			sets.byLabels.Delete(e.Object.Name)
			q.Add(request(e.Object.Name))
		},
	}
}

func statusAlone(before, after *v1alpha1.SidecarSet) bool {
	return before.UID == after.UID && before.Generation == after.Generation &&
		maps.Equal(before.Labels, after.Labels) && maps.Equal(before.Annotations, after.Annotations)
}

func podEvents(sets *setLister) handler.TypedFuncs[*corev1.Pod, reconcile.Request] {
	return handler.TypedFuncs[*corev1.Pod, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Pod], q queue) {
			sets.enqueueInjected(q, e.Object)
			// At the start every set is enqueued anyway.
			if !e.IsInInitialList {
				sets.enqueueUninjected(q, e.Object)
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queue) {
			if affectsStatus(e.ObjectOld, e.ObjectNew) {
				sets.enqueueInjected(q, e.ObjectOld)
				sets.enqueueInjected(q, e.ObjectNew)
			}
			if affectsUninjected(e.ObjectOld, e.ObjectNew) {
				sets.enqueueUninjected(q, e.ObjectOld)
				sets.enqueueUninjected(q, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queue) {
			sets.enqueueInjected(q, e.Object)
			sets.enqueueUninjected(q, e.Object)
		},
	}
}

// affectsUninjected reports whether a change of a pod can change which sets it lacks.
func affectsUninjected(before, after *corev1.Pod) bool {
	return before.UID != after.UID || match.Active(before) != match.Active(after) || !maps.Equal(before.Labels, after.Labels) ||
		before.Annotations[v1alpha1.InjectedListAnnotation] != after.Annotations[v1alpha1.InjectedListAnnotation]
}

// affectsStatus reports whether a change of a pod can change a set's status: everything
// that matching, podstate and start failures read.
func affectsStatus(before, after *corev1.Pod) bool {
	if before.UID != after.UID || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		before.Status.Phase != after.Status.Phase || !maps.Equal(before.Labels, after.Labels) {
		return true
	}
	for _, key := range []string{
		v1alpha1.InjectedListAnnotation, v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation,
		v1alpha1.InPlaceUpdateStateAnnotation, v1alpha1.WorkingHotUpgradeContainerAnnotation,
	} {
		if before.Annotations[key] != after.Annotations[key] {
			return true
		}
	}
	return !equality.Semantic.DeepEqual(podCondition(before, corev1.PodReady), podCondition(after, corev1.PodReady)) ||
		!equality.Semantic.DeepEqual(podCondition(before, v1alpha1.UpgradableCondition), podCondition(after, v1alpha1.UpgradableCondition)) ||
		!equality.Semantic.DeepEqual(before.Status.ContainerStatuses, after.Status.ContainerStatuses) ||
		!equality.Semantic.DeepEqual(before.Status.InitContainerStatuses, after.Status.InitContainerStatuses)
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func (l *setLister) enqueueInjected(q queue, pod *corev1.Pod) {
	for _, set := range record.InjectedSets(pod.Annotations) {
		l.limiter.enqueue(q, set)
	}
}

func namespaceEvents(sets *setLister) handler.TypedFuncs[*corev1.Namespace, reconcile.Request] {
	return handler.TypedFuncs[*corev1.Namespace, reconcile.Request]{
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Namespace], q queue) {
			if !maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) {
				sets.enqueue(ctx, q, func(s *v1alpha1.SidecarSet) bool {
					concerned := s.Spec.NamespaceSelector != nil || e.ObjectOld.Labels[v1alpha1.InjectionLabel] != e.ObjectNew.Labels[v1alpha1.InjectionLabel]
					if concerned {
						sets.uninjected.invalidate(s.Name)
					}
					return concerned
				})
			}
		},
	}
}

// revisionEvents enqueue sets whose revisions somebody else deleted or changed.
func revisionEvents(limiter *enqueueLimiter) handler.TypedFuncs[*appsv1.ControllerRevision, reconcile.Request] {
	enqueue := func(q queue, revision *appsv1.ControllerRevision) {
		if set := revision.Labels[v1alpha1.SidecarSetNameLabel]; set != "" {
			limiter.enqueue(q, set)
		}
	}
	return handler.TypedFuncs[*appsv1.ControllerRevision, reconcile.Request]{
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*appsv1.ControllerRevision], q queue) {
			enqueue(q, e.ObjectOld)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*appsv1.ControllerRevision], q queue) {
			enqueue(q, e.Object)
		},
	}
}

func temporalEvents(sets *setLister) handler.Funcs {
	return handler.Funcs{
		GenericFunc: func(ctx context.Context, _ event.GenericEvent, q queue) {
			sets.enqueue(ctx, q, concernsTemporal)
		},
	}
}

// concernsTemporal reports whether a set is to be looked at when Temporal goes away or comes
// back: unless its status says that its rollout has ended. A status that is about to say
// otherwise is an event of its own.
func concernsTemporal(set *v1alpha1.SidecarSet) bool {
	progressing := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
	if !rolloutStarted(set) || set.Status.Rollout.Hold != nil || progressing == nil {
		return true
	}
	return !slices.Contains([]string{
		v1alpha1.ReasonRolloutComplete, v1alpha1.ReasonPartitionReached, v1alpha1.ReasonNotUpgradablePods, v1alpha1.ReasonNotUpdate, v1alpha1.ReasonInvalid,
	}, progressing.Reason)
}

// setLister finds the sets that an event concerns, and enqueues them.
type setLister struct {
	client.Reader
	limiter *enqueueLimiter
	// byLabels holds the names of sets.
	byLabels   match.Index[string]
	uninjected *uninjectedCache
}

// index files a set under its selector. One that cannot be read selects nothing. What was
// scanned before may lack pods whose events the selector did not reach yet.
func (l *setLister) index(set *v1alpha1.SidecarSet) {
	defer l.uninjected.invalidate(set.Name)
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		l.byLabels.Delete(set.Name)
		return
	}
	l.byLabels.Put(set.Name, scope, set.Name)
}

func (l *setLister) enqueue(ctx context.Context, q queue, picked func(*v1alpha1.SidecarSet) bool) {
	var sets v1alpha1.SidecarSetList
	if err := l.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
		// The cache fails only while the process stops.
		log.FromContext(ctx).Error(err, "cannot list SidecarSets from the cache")
		return
	}
	for i := range sets.Items {
		if picked(&sets.Items[i]) {
			l.limiter.enqueue(q, sets.Items[i].Name)
		}
	}
}

// enqueueUninjected enqueues the sets that select the pod but are not injected into it.
func (l *setLister) enqueueUninjected(q queue, pod *corev1.Pod) {
	for _, set := range l.byLabels.Matching(pod.Labels) {
		if !record.Injected(pod.Annotations, set) {
			l.uninjected.invalidate(set)
			l.limiter.enqueue(q, set)
		}
	}
}

func request(set string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: set}}
}
