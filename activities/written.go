package activities

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
)

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
