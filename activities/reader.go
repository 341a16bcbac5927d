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
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube"
)

const (
	// refreshAge is when what the API server said is asked for again, usableAge until
	// when nobody waits for the new answer, and maxAge how old it may be when a pod is
	// written.
	refreshAge = time.Second
	usableAge  = 1500 * time.Millisecond
	maxAge     = 2 * time.Second
	// liveReadAfter is when writes that the cache still does not show are compared
	// with the API server: resourceVersions go backwards when etcd is restored.
	liveReadAfter = 5 * time.Second
	// pageSize is that of kubectl.
	pageSize = 500
)

// reader reads sets and pods, from the cache or from the API server.
type reader struct {
	cache, live     client.Reader
	index           *kube.Pods
	clock           clock.PassiveClock
	populations     *rollout.PopulationCache
	namespaceLabels func(context.Context) func(string) (map[string]string, error)
}

// set returns the set as the API server has it, or nil when it is gone.
func (r *reader) set(ctx context.Context, reference protocol.SetReference) (*v1alpha1.SidecarSet, error) {
	set := &v1alpha1.SidecarSet{}
	err := r.live.Get(ctx, types.NamespacedName{Name: reference.Name}, set)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read SidecarSet %s: %w", reference.Name, err)
	case set.UID != reference.UID || set.DeletionTimestamp != nil:
		return nil, nil
	}
	return set, nil
}

// recentSet is a set, or nil when it is gone, as it was at most maxAge ago. The
// cache is not asked: after an outage its sets may be half a minute behind while
// its pods are current again.
type recentSet = recent[*v1alpha1.SidecarSet]

func (r *reader) recentSet(reference protocol.SetReference) *recentSet {
	return newRecent(r.clock, "SidecarSet "+reference.Name, func(ctx context.Context) (*v1alpha1.SidecarSet, error) {
		return r.set(ctx, reference)
	})
}

// population reads the matched pods of a set from the cache.
func (r *reader) population(ctx context.Context, set *v1alpha1.SidecarSet) ([]rollout.Pod, error) {
	pods, err := r.index.Of(set.Name)
	if err != nil {
		return nil, err
	}
	return r.populations.Population(set, pods, r.namespaceLabels(ctx))
}

// moving counts the pods of a set in the cache that in-place upgrades made
// unavailable, matched or not.
func (r *reader) moving(set *v1alpha1.SidecarSet) (int, error) {
	pods, err := r.index.Of(set.Name)
	if err != nil {
		return 0, err
	}
	return r.populations.Moving(set, pods)
}

// state compares one pod with the set, if it is one of its matched pods.
func (r *reader) state(ctx context.Context, set *v1alpha1.SidecarSet, pod *corev1.Pod) (state podstate.State, matched bool, err error) {
	population, err := rollout.Population(set, []*corev1.Pod{pod}, r.namespaceLabels(ctx))
	if err != nil || len(population) == 0 {
		return podstate.State{}, false, err
	}
	return population[0].State, true, nil
}

// cachedPod and livePod return a pod, or nil when the object of that uid is not
// there.
func (r *reader) cachedPod(ctx context.Context, reference protocol.PodReference) (*corev1.Pod, error) {
	return readPod(ctx, r.cache, reference)
}

func (r *reader) livePod(ctx context.Context, reference protocol.PodReference) (*corev1.Pod, error) {
	return readPod(ctx, r.live, reference)
}

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

// podsVersion is the resourceVersion of all pods, as the API server has them now.
func (r *reader) podsVersion(ctx context.Context) (string, error) {
	pods := newPodList()
	if err := r.live.List(ctx, pods, client.Limit(1)); err != nil {
		return "", fmt.Errorf("list pods: %w", err)
	}
	return pods.ResourceVersion, nil
}

func newPodList() *metav1.PartialObjectMetadataList {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	return pods
}

// livePods lists the pods that a set was injected into, as the API server has
// them.
func (r *reader) livePods(ctx context.Context, set *v1alpha1.SidecarSet) ([]protocol.WrittenPod, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: spec.selector: %w", set.Name, err)
	}
	injected := func(annotations map[string]string) bool { return record.Injected(annotations, set.Name) }
	found, err := r.listLive(ctx, injected, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	return found, nil
}

// listLive lists pods that are injected, as the API server has them, a page at a time:
// all of a large cluster would take more memory than the cache.
func (r *reader) listLive(ctx context.Context, injected func(annotations map[string]string) bool, options ...client.ListOption) (found []protocol.WrittenPod, err error) {
	for next := ""; ; {
		pods := newPodList()
		if err := r.live.List(ctx, pods, append(slices.Clone(options), client.Limit(pageSize), client.Continue(next))...); err != nil {
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

// unseenWrites are pods that were written, by another worker or this one, and
// that the cache does not show so yet: it lags behind, and must not be planned
// from.
type unseenWrites struct {
	reader *reader
	pods   []protocol.WrittenPod
	// since is when the cache was looked at first, and compared when the API
	// server was asked last.
	since, compared time.Time
}

func (r *reader) unseenWrites(written []protocol.WrittenPod) *unseenWrites {
	now := r.clock.Now()
	return &unseenWrites{reader: r, pods: written, since: now, compared: now}
}

func (w *unseenWrites) add(written []protocol.WrittenPod) {
	if len(w.pods) == 0 {
		now := w.reader.clock.Now()
		w.since, w.compared = now, now
	}
	w.pods = append(w.pods, written...)
}

// count drops the writes that the cache shows, and counts the others. A pod that
// the cache lacks counts as gone only when the API server says so, because a
// late cache may not have seen its creation either.
func (w *unseenWrites) count(ctx context.Context) (int, error) {
	now := w.reader.clock.Now()
	compare := now.Sub(w.since) >= liveReadAfter && now.Sub(w.compared) >= liveReadAfter
	if compare {
		w.compared = now
	}
	var left []protocol.WrittenPod
	for _, pod := range w.pods {
		shown, err := w.reader.cacheShows(ctx, &pod, compare)
		if err != nil {
			return 0, fmt.Errorf("look for the write to pod %s: %w", pod.PodReference, err)
		}
		if !shown {
			left = append(left, pod)
		}
	}
	w.pods = left
	return len(left), nil
}

// cacheShows reports whether the cache has a pod as it was written. One that may
// have been written, or is to be compared, must be in the cache as the API
// server has it now.
func (r *reader) cacheShows(ctx context.Context, written *protocol.WrittenPod, compare bool) (bool, error) {
	if written.ResourceVersion == "" || compare {
		pod, err := r.livePod(ctx, written.PodReference)
		if err != nil || pod == nil {
			return err == nil, err
		}
		written.ResourceVersion = pod.ResourceVersion
	}
	pod, err := r.cachedPod(ctx, written.PodReference)
	if err != nil {
		return false, err
	}
	if pod != nil {
		order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, written.ResourceVersion)
		return order >= 0, err
	}
	pod, err = r.livePod(ctx, written.PodReference)
	return err == nil && pod == nil, err
}

// recent is what the API server said at most maxAge ago.
type recent[T any] struct {
	clock clock.PassiveClock
	// what is asked for, in errors.
	what string
	ask  func(context.Context) (T, error)

	// asking is held by whoever asks.
	asking sync.Mutex
	mu     sync.Mutex
	asked  time.Time
	answer T
}

func newRecent[T any](clock clock.PassiveClock, what string, ask func(context.Context) (T, error)) *recent[T] {
	return &recent[T]{clock: clock, what: what, ask: ask}
}

// get asks again when the last answer was asked for refreshAge ago, but waits only
// when it is older than usableAge: slots that are free would wait as well. Who waited
// while an answer was on its way takes it. One that took longer than maxAge is an
// error: it says how things were when it was asked for.
func (r *recent[T]) get(ctx context.Context) (T, error) {
	answer, asked := r.known()
	switch age := r.clock.Since(asked); {
	case age < refreshAge:
		return answer, nil
	case age <= usableAge:
		if r.asking.TryLock() {
			go func() {
				defer r.asking.Unlock()
				// Who cannot do without the answer asks again, and is told why.
				_, _ = r.refresh(ctx)
			}()
		}
		return answer, nil
	}
	r.asking.Lock()
	defer r.asking.Unlock()
	if newer, again := r.known(); again.After(asked) && r.clock.Since(again) <= maxAge {
		return newer, nil
	}
	return r.refresh(ctx)
}

// known is the last answer, and when it was asked for.
func (r *recent[T]) known() (answer T, asked time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answer, r.asked
}

func (r *recent[T]) refresh(ctx context.Context) (T, error) {
	asked := r.clock.Now()
	answer, err := r.ask(ctx)
	if late := r.clock.Since(asked); err == nil && late > maxAge {
		err = fmt.Errorf("read %s: the answer took %s and is too old to act on", r.what, late)
	}
	if err != nil {
		var none T
		return none, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked, r.answer = asked, answer
	return answer, nil
}
