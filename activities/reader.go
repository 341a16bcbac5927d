package activities

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube"
)

const (
	// A cached response of the API server is refreshed after refreshAge. During the refresh, callers use the old
	// response until usableAge. No pod is written based on a response older than maxAge.
	refreshAge = time.Second
	usableAge  = 1500 * time.Millisecond
	maxAge     = 2 * time.Second
	// liveReadAfter is the time after which pods with unseen writes are read from the API server, because the
	// cache may never show the resourceVersion of a write after a restore of etcd.
	liveReadAfter = 5 * time.Second
	// pageSize is the number of objects in one page of a list, as in kubectl.
	pageSize = 500
)

// liveSet reads the SidecarSet from the API server, and returns the SidecarSet completed with defaults.
// liveSet returns nil if the SidecarSet is gone, is being deleted, or was recreated with another uid.
func (a *Activities) liveSet(ctx context.Context, reference protocol.SetReference) (*v1alpha1.SidecarSet, error) {
	set := &v1alpha1.SidecarSet{}
	err := a.Live.Get(ctx, types.NamespacedName{Name: reference.Name}, set)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read SidecarSet %s: %w", reference.Name, err)
	case set.UID != reference.UID || set.DeletionTimestamp != nil:
		return nil, nil
	}
	return revision.Completed(set)
}

// recentSet is a SidecarSet that was read at most maxAge ago, or nil if the SidecarSet is gone. recentSet reads
// from the API server and not from the cache, because after an outage, the cached SidecarSets may be half a
// minute older than the cached pods.
type recentSet = recent[*v1alpha1.SidecarSet]

// population reads the matched pods of a SidecarSet from the cache.
func (a *Activities) population(ctx context.Context, set *v1alpha1.SidecarSet) ([]rollout.Pod, error) {
	pods, err := a.Index.Of(set.Name)
	if err != nil {
		return nil, err
	}
	return a.populations.Population(set, pods, kube.NamespaceLabels(ctx, a.Cache))
}

// inFlight counts the cached pods of a SidecarSet, matched or not, that upgrades in place have made unavailable.
func (a *Activities) inFlight(set *v1alpha1.SidecarSet) (int, error) {
	pods, err := a.Index.Of(set.Name)
	if err != nil {
		return 0, err
	}
	all, _, err := a.populations.CountUnavailable(set, pods)
	return all, err
}

// state returns the state of a pod with respect to the SidecarSet. matched is false if the
// SidecarSet does not match the pod.
func (a *Activities) state(ctx context.Context, set *v1alpha1.SidecarSet, pod *corev1.Pod) (state podstate.State, matched bool, err error) {
	population, err := rollout.Population(set, []*corev1.Pod{pod}, kube.NamespaceLabels(ctx, a.Cache))
	if err != nil || len(population) == 0 {
		return podstate.State{}, false, err
	}
	return population[0].State, true, nil
}

// readPod returns the pod of reference, or nil if no pod has the name and the uid of reference.
func readPod(ctx context.Context, from client.Reader, reference protocol.PodReference) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := from.Get(ctx, types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}, &pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != reference.UID {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &pod, nil
}

// podsVersion returns the current resourceVersion of the list of all pods.
func (a *Activities) podsVersion(ctx context.Context) (string, error) {
	pods := newPodList()
	if err := a.Live.List(ctx, pods, client.Limit(1)); err != nil {
		return "", fmt.Errorf("list pods: %w", err)
	}
	return pods.ResourceVersion, nil
}

func newPodList() *metav1.PartialObjectMetadataList {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	return pods
}

// livePods lists the pods of a SidecarSet from the API server: the pods that the selector matches and that
// list the SidecarSet as injected.
func (a *Activities) livePods(ctx context.Context, set *v1alpha1.SidecarSet) ([]protocol.WrittenPod, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: spec.selector: %w", set.Name, err)
	}
	injected := func(annotations map[string]string) bool { return record.Injected(annotations, set.Name) }
	found, err := a.listLive(ctx, injected, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	return found, nil
}

// listLive returns the pods whose annotations satisfy the function injected. listLive reads the pods from the API
// server in pages, because one response with all pods of a large cluster would need more memory than the cache.
func (a *Activities) listLive(ctx context.Context, injected func(annotations map[string]string) bool, options ...client.ListOption) (found []protocol.WrittenPod, err error) {
	for next := ""; ; {
		pods := newPodList()
		if err := a.Live.List(ctx, pods, append(slices.Clone(options), client.Limit(pageSize), client.Continue(next))...); err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; injected(pod.Annotations) {
				reference := protocol.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
				found = append(found, protocol.WrittenPod{PodReference: reference, ResourceVersion: pod.ResourceVersion})
			}
		}
		if next = pods.Continue; next == "" {
			return found, nil
		}
	}
}

// recent caches the response to one request to the API server, for at most maxAge.
type recent[T any] struct {
	clock clock.PassiveClock
	// object is the name of the object in errors.
	object  string
	request func(context.Context) (T, error)

	// requesting is locked during a request.
	requesting  sync.Mutex
	mu          sync.Mutex
	requestedAt time.Time
	answer      T
}

func newRecent[T any](clock clock.PassiveClock, object string, request func(context.Context) (T, error)) *recent[T] {
	return &recent[T]{clock: clock, object: object, request: request}
}

// get returns the last response, and refreshes the response if the last request was sent at least refreshAge ago.
// get waits for the refresh only if the last response is older than usableAge, so that free slots are filled
// without delay. Concurrent callers share the response to one request. If a request takes longer than maxAge, get
// returns an error, because the response may describe the state at the time of the request.
func (r *recent[T]) get(ctx context.Context) (T, error) {
	answer, requestedAt := r.known()
	switch age := r.clock.Since(requestedAt); {
	case age < refreshAge:
		return answer, nil
	case age <= usableAge:
		if r.requesting.TryLock() {
			go func() {
				defer r.requesting.Unlock()
				// The error is ignored, because the next caller that needs a new response retries the request.
				_, _ = r.refresh(ctx)
			}()
		}
		return answer, nil
	}
	r.requesting.Lock()
	defer r.requesting.Unlock()
	if newer, again := r.known(); again.After(requestedAt) && r.clock.Since(again) <= maxAge {
		return newer, nil
	}
	return r.refresh(ctx)
}

// since returns the response to a request that was sent no earlier than at. Concurrent callers share the response
// to one request.
func (r *recent[T]) since(ctx context.Context, at time.Time) (T, error) {
	r.requesting.Lock()
	defer r.requesting.Unlock()
	if answer, requestedAt := r.known(); !requestedAt.Before(at) && r.clock.Since(requestedAt) <= maxAge {
		return answer, nil
	}
	return r.refresh(ctx)
}

// known returns the last response, and the time of the request for this response.
func (r *recent[T]) known() (answer T, requestedAt time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answer, r.requestedAt
}

func (r *recent[T]) refresh(ctx context.Context) (T, error) {
	requestedAt := r.clock.Now()
	answer, err := r.request(ctx)
	if late := r.clock.Since(requestedAt); err == nil && late > maxAge {
		err = fmt.Errorf("read %s: the answer took %s and is too old to act on", r.object, late)
	}
	if err != nil {
		var none T
		return none, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requestedAt, r.answer = requestedAt, answer
	return answer, nil
}
