package operator

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/operator/runs"
)

// minReconcileInterval is the minimum time between two reconciles of a SidecarSet if events of pods,
// namespaces and revisions, or a change of only the status, cause the second reconcile. Each reconcile reads
// all pods of the SidecarSet, and each write of status is an event for every watch of SidecarSets.
const minReconcileInterval = time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// sources returns the watches that enqueue SidecarSets.
func sources(mgr manager.Manager, temporal *runs.Client, calls *calls, orphans *runs.Orphans, changes *runChanges, probe *webhookProbe, sets *setLister) []source.Source {
	cache, limiter := mgr.GetCache(), sets.limiter
	enqueue := handler.Funcs{GenericFunc: func(_ context.Context, e event.GenericEvent, q queue) { q.Add(request(e.Object.GetName())) }}
	return []source.Source{
		source.Kind(cache, &v1alpha1.SidecarSet{}, setEvents(sets, orphans.Add)),
		source.Kind(cache, &corev1.Pod{}, podEvents(sets)),
		source.Kind(cache, &corev1.Namespace{}, namespaceEvents(sets, probe.webhook)),
		source.Kind(cache, &appsv1.ControllerRevision{}, revisionEvents(limiter)),
		source.Channel(temporal.Changes, eventsOfAll(sets, needsTemporal)),
		source.Channel(probe.changes, eventsOfAll(sets, func(*v1alpha1.SidecarSet) bool { return true })),
		source.Channel(orphans.Requeues, enqueue),
		source.Channel(changes.requeues, enqueue),
		source.Channel(calls.ended, enqueue),
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
				// The watch missed the deletion of the old SidecarSet.
				deleted(e.ObjectOld)
			}
			switch {
			case !onlyStatus(e.ObjectOld, e.ObjectNew):
				q.Add(request(e.ObjectNew.Name))
			case e.ObjectOld.ResourceVersion == e.ObjectNew.ResourceVersion, !sets.reported.is(e.ObjectNew):
				// The event is a resync, the operator has written more than a report, or another client has
				// written the status. In the last case, the reconcile corrects the status.
				q.AddAfter(request(e.ObjectNew.Name), minReconcileInterval)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.SidecarSet], q queue) {
			deleted(e.Object)
			sets.byLabels.Delete(e.Object.Name)
			q.Add(request(e.Object.Name))
		},
	}
}

func onlyStatus(before, after *v1alpha1.SidecarSet) bool {
	return before.UID == after.UID && before.Generation == after.Generation &&
		maps.Equal(before.Labels, after.Labels) && maps.Equal(before.Annotations, after.Annotations)
}

func podEvents(sets *setLister) handler.TypedFuncs[*corev1.Pod, reconcile.Request] {
	return handler.TypedFuncs[*corev1.Pod, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.Pod], q queue) {
			sets.enqueueInjected(q, e.Object)
			// At the start, the events of the SidecarSets enqueue every SidecarSet.
			if !e.IsInInitialList {
				sets.enqueueUninjected(ctx, q, e.Object)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queue) {
			if affectsStatus(e.ObjectOld, e.ObjectNew) {
				sets.enqueueInjected(q, e.ObjectOld)
				sets.enqueueInjected(q, e.ObjectNew)
			}
			if affectsUninjected(e.ObjectOld, e.ObjectNew) {
				sets.enqueueUninjected(ctx, q, e.ObjectOld)
				sets.enqueueUninjected(ctx, q, e.ObjectNew)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queue) {
			sets.enqueueInjected(q, e.Object)
			sets.enqueueUninjected(ctx, q, e.Object)
		},
	}
}

// affectsUninjected reports whether a change of a pod can change the SidecarSets that match the pod but are
// not injected.
func affectsUninjected(before, after *corev1.Pod) bool {
	return before.UID != after.UID || match.Active(before) != match.Active(after) || !maps.Equal(before.Labels, after.Labels) ||
		before.Annotations[v1alpha1.InjectedListAnnotation] != after.Annotations[v1alpha1.InjectedListAnnotation]
}

// affectsStatus reports whether a change of a pod can change the status of a SidecarSet. affectsStatus
// compares all fields that affect matching, the state of the pod, and failures to start.
func affectsStatus(before, after *corev1.Pod) bool {
	return conditionsDiffer(before, after) || metadataDiffers(before, after) || statusDiffers(before, after)
}

func metadataDiffers(before, after *corev1.Pod) bool {
	for _, key := range [...]string{
		v1alpha1.InjectedListAnnotation, v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation,
		v1alpha1.InPlaceUpdateStateAnnotation, v1alpha1.WorkingHotUpgradeContainerAnnotation, v1alpha1.ResizeAnnotation,
	} {
		if before.Annotations[key] != after.Annotations[key] {
			return true
		}
	}
	return before.UID != after.UID || (before.DeletionTimestamp != nil) != (after.DeletionTimestamp != nil) || !maps.Equal(before.Labels, after.Labels)
}

func conditionsDiffer(before, after *corev1.Pod) bool {
	for _, kind := range [...]corev1.PodConditionType{corev1.PodReady, v1alpha1.UpgradableCondition, corev1.PodResizePending, corev1.PodResizeInProgress} {
		if !equality.Semantic.DeepEqual(podstate.Condition(before, kind), podstate.Condition(after, kind)) {
			return true
		}
	}
	return podstate.NodeLost(before) != podstate.NodeLost(after)
}

func statusDiffers(before, after *corev1.Pod) bool {
	was, is := &before.Status, &after.Status
	return was.Phase != is.Phase || was.QOSClass != is.QOSClass || (was.ObservedGeneration == 0) != (is.ObservedGeneration == 0) ||
		(was.ObservedGeneration < before.Generation) != (is.ObservedGeneration < after.Generation) ||
		!equality.Semantic.DeepEqual(was.ContainerStatuses, is.ContainerStatuses) ||
		!equality.Semantic.DeepEqual(was.InitContainerStatuses, is.InitContainerStatuses)
}

func (l *setLister) enqueueInjected(q queue, pod *corev1.Pod) {
	for _, set := range record.InjectedSets(pod.Annotations) {
		l.limiter.enqueue(q, set)
	}
}

// namespaceEvents returns the handler of changed labels of a namespace. The handler enqueues the SidecarSets
// with a namespaceSelector. If the change affects whether the API server calls the webhook for the namespace,
// the handler enqueues all SidecarSets.
func namespaceEvents(sets *setLister, webhook *podWebhook) handler.TypedFuncs[*corev1.Namespace, reconcile.Request] {
	return handler.TypedFuncs[*corev1.Namespace, reconcile.Request]{
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Namespace], q queue) {
			if !maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) {
				called := webhook.called(ctx)
				injection := called.Namespace(e.ObjectOld.Name, e.ObjectOld.Labels) != called.Namespace(e.ObjectNew.Name, e.ObjectNew.Labels)
				sets.enqueue(ctx, q, func(s *v1alpha1.SidecarSet) bool {
					if s.Spec.NamespaceSelector == nil && !injection {
						return false
					}
					sets.uninjected.invalidate(s.Name)
					return true
				})
			}
		},
	}
}

// revisionEvents returns the handler that enqueues a SidecarSet after each event about one of its revisions.
// Another client may have deleted or changed the revision, or the last reconcile may have run before the cache
// contained the revision.
func revisionEvents(limiter *enqueueLimiter) handler.TypedFuncs[*appsv1.ControllerRevision, reconcile.Request] {
	enqueue := func(q queue, revision *appsv1.ControllerRevision) {
		if set := revision.Labels[v1alpha1.SidecarSetNameLabel]; set != "" {
			limiter.enqueue(q, set)
		}
	}
	return handler.TypedFuncs[*appsv1.ControllerRevision, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*appsv1.ControllerRevision], q queue) {
			if !e.IsInInitialList {
				enqueue(q, e.Object)
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*appsv1.ControllerRevision], q queue) {
			enqueue(q, e.ObjectOld)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*appsv1.ControllerRevision], q queue) {
			enqueue(q, e.Object)
		},
	}
}

// eventsOfAll returns the handler of an event that enqueues every SidecarSet for which picked
// returns true.
func eventsOfAll(sets *setLister, picked func(*v1alpha1.SidecarSet) bool) handler.Funcs {
	return handler.Funcs{
		GenericFunc: func(ctx context.Context, _ event.GenericEvent, q queue) { sets.enqueue(ctx, q, picked) },
	}
}

// setLister finds and enqueues the SidecarSets that an event concerns.
type setLister struct {
	client.Reader
	// namespace is the system namespace.
	namespace  string
	limiter    *enqueueLimiter
	byLabels   match.Index[scopedSet]
	uninjected *uninjectedCache
	reported   *reports
}

// scopedSet is the part of a SidecarSet that the handlers of pod events need.
type scopedSet struct {
	name  string
	scope match.Scope
}

// index indexes a SidecarSet by its selector. A selector that cannot be parsed selects nothing. index
// invalidates the cached scan, because earlier events about newly selected pods did not invalidate the scan.
func (l *setLister) index(set *v1alpha1.SidecarSet) {
	defer l.uninjected.invalidate(set.Name)
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		l.byLabels.Delete(set.Name)
		return
	}
	l.byLabels.Put(set.Name, scope, scopedSet{set.Name, scope})
}

func (l *setLister) enqueue(ctx context.Context, q queue, picked func(*v1alpha1.SidecarSet) bool) {
	var sets v1alpha1.SidecarSetList
	if err := l.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
		// A list from the cache fails only while the process stops.
		log.FromContext(ctx).Error(err, "cannot list SidecarSets from the cache")
		return
	}
	for i := range sets.Items {
		if picked(&sets.Items[i]) {
			l.limiter.enqueue(q, sets.Items[i].Name)
		}
	}
}

// enqueueUninjected enqueues the SidecarSets that match pod but are not injected into pod. A later change
// of the labels of the namespace is a separate event.
func (l *setLister) enqueueUninjected(ctx context.Context, q queue, pod *corev1.Pod) {
	selecting := slices.DeleteFunc(l.byLabels.Matching(pod.Labels), func(set scopedSet) bool {
		return record.Injected(pod.Annotations, set.name)
	})
	if len(selecting) == 0 {
		return
	}
	labels, err := kube.NamespaceLabels(ctx, l)(pod.Namespace)
	for _, set := range selecting {
		// The cache may not contain the namespace yet. In this case, the SidecarSet is enqueued, and the
		// scan is retried until the cache contains the namespace.
		if err == nil && !set.scope.Covers(pod.Namespace, labels, l.namespace) {
			continue
		}
		l.uninjected.invalidate(set.name)
		l.limiter.enqueue(q, set.name)
	}
}

func request(set string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: set}}
}

// enqueueLimiter delays events, such as events about pods and revisions, so that a SidecarSet is reconciled
// at most once per minReconcileInterval because of these events.
type enqueueLimiter struct {
	clock clock.PassiveClock
	// reconciledAt contains the time of the last reconcile of each SidecarSet, by name.
	reconciledAt sync.Map
}

func newEnqueueLimiter(clock clock.PassiveClock) *enqueueLimiter {
	return &enqueueLimiter{clock: clock}
}

func (l *enqueueLimiter) recordReconcile(set string, at time.Time) { l.reconciledAt.Store(set, at) }

func (l *enqueueLimiter) forget(set string) { l.reconciledAt.Delete(set) }

// enqueue adds set to the queue q, at the earliest minReconcileInterval after the last reconcile of set. If
// set is queued already, q keeps the earlier time.
func (l *enqueueLimiter) enqueue(q queue, set string) {
	var left time.Duration
	if at, ok := l.reconciledAt.Load(set); ok {
		left = at.(time.Time).Add(minReconcileInterval).Sub(l.clock.Now())
	}
	if left <= 0 {
		q.Add(request(set))
		return
	}
	q.AddAfter(request(set), left)
}
