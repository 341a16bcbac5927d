package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

// liveSet reads a set past the cache, which may be half a minute behind after
// an outage while the pods' is current again.
type liveSet = recent[*v1alpha1.SidecarSet]

// liveSet gets the set as it was at most maxAge ago, or nil when it is gone.
func (a *Activities) liveSet(reference protocol.SetReference) *liveSet {
	return newRecent(a.Clock, func(ctx context.Context) (*v1alpha1.SidecarSet, error) {
		return a.readSet(ctx, reference)
	})
}

// readSet returns the set as the API server has it, or nil when it is gone.
func (a *Activities) readSet(ctx context.Context, reference protocol.SetReference) (*v1alpha1.SidecarSet, error) {
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
	return set, nil
}

// population reads the matched pods of a set from the cache.
func (a *Activities) population(ctx context.Context, set *v1alpha1.SidecarSet) ([]rollout.Pod, error) {
	pods, err := a.Index.Of(set.Name)
	if err != nil {
		return nil, err
	}
	return a.populations.Population(set, pods, a.namespaceLabels(ctx))
}

// stateOf compares one pod with the set, if it is one of its matched pods.
func (a *Activities) stateOf(ctx context.Context, set *v1alpha1.SidecarSet, pod *corev1.Pod) (state podstate.State, matched bool, err error) {
	population, err := rollout.Population(set, []*corev1.Pod{pod}, a.namespaceLabels(ctx))
	if err != nil || len(population) == 0 {
		return podstate.State{}, false, err
	}
	return population[0].State, true, nil
}

const (
	// refreshAge is when what the API server said is asked for again, and maxAge
	// how old it may be when a pod is written.
	refreshAge = time.Second
	maxAge     = 2 * time.Second
)

// recent is what the API server said at most maxAge ago.
type recent[T any] struct {
	clock clock.PassiveClock
	ask   func(context.Context) (T, error)

	mu     sync.Mutex
	asked  time.Time
	answer T
}

func newRecent[T any](clock clock.PassiveClock, ask func(context.Context) (T, error)) *recent[T] {
	return &recent[T]{clock: clock, ask: ask}
}

// get asks at most once in refreshAge. An answer that took longer than maxAge is
// an error: it says how things were when it was asked for.
func (r *recent[T]) get(ctx context.Context) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked.IsZero() && r.clock.Since(r.asked) < refreshAge {
		return r.answer, nil
	}
	var none T
	asked := r.clock.Now()
	answer, err := r.ask(ctx)
	if err != nil {
		return none, err
	}
	if late := r.clock.Since(asked); late > maxAge {
		return none, fmt.Errorf("the API server's answer took %s and is too old to act on", late)
	}
	r.asked, r.answer = asked, answer
	return answer, nil
}

// liveReadAfter is when writes that the cache still does not show are compared
// with the API server: resourceVersions go backwards when etcd is restored.
const liveReadAfter = 5 * time.Second

// writes are pods that were written, by another worker or this one, and that
// the cache does not show so yet: it lags behind, and must not be planned from.
type writes struct {
	*Activities
	unseen []protocol.WrittenPod
	// since is when the cache was looked at first, and compared when the API
	// server was asked last.
	since, compared time.Time
}

func (a *Activities) newWrites(written []protocol.WrittenPod) *writes {
	now := a.Clock.Now()
	return &writes{Activities: a, unseen: written, since: now, compared: now}
}

// add has more writes waited for.
func (w *writes) add(written []protocol.WrittenPod) {
	if len(w.unseen) == 0 {
		w.since, w.compared = w.Clock.Now(), w.Clock.Now()
	}
	w.unseen = append(w.unseen, written...)
}

// count drops the writes that the cache shows, and counts the others. A pod that
// the cache lacks counts as gone only when the API server says so, because a
// late cache may not have seen its creation either.
func (w *writes) count(ctx context.Context) (int, error) {
	now := w.Clock.Now()
	compare := now.Sub(w.since) >= liveReadAfter && now.Sub(w.compared) >= liveReadAfter
	if compare {
		w.compared = now
	}
	var left []protocol.WrittenPod
	for _, pod := range w.unseen {
		shown, err := w.cacheShows(ctx, &pod, compare)
		if err != nil {
			return 0, fmt.Errorf("look for the write to pod %s: %w", pod.PodReference, err)
		}
		if !shown {
			left = append(left, pod)
		}
	}
	w.unseen = left
	return len(left), nil
}

// cacheShows reports whether the cache has a pod as it was written. One that may
// have been written, or is to be compared, must be in the cache as the API
// server has it now.
func (a *Activities) cacheShows(ctx context.Context, written *protocol.WrittenPod, compare bool) (bool, error) {
	if written.ResourceVersion == "" || compare {
		pod, err := a.read(ctx, a.Live, written.PodReference)
		if err != nil || pod == nil {
			return err == nil, err
		}
		written.ResourceVersion = pod.ResourceVersion
	}
	pod, err := a.read(ctx, a.Cache, written.PodReference)
	if err != nil {
		return false, err
	}
	if pod != nil {
		order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, written.ResourceVersion)
		return order >= 0, err
	}
	pod, err = a.read(ctx, a.Live, written.PodReference)
	return err == nil && pod == nil, err
}

// read returns a pod, or nil when that incarnation of it is not there.
func (a *Activities) read(ctx context.Context, reader client.Reader, reference protocol.PodReference) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := reader.Get(ctx, types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}, &pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != reference.UID {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &pod, nil
}
