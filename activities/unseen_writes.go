package activities

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/outrigger/outrigger/api/protocol"
)

// unseenWrites contains writes of this worker or of other workers that the cache may not show yet. A plan must
// take unseen writes into account.
type unseenWrites struct {
	*Activities
	pods []protocol.WrittenPod
	// since is the time at which the oldest write was added. compared is the time of the last
	// comparison with the API server.
	since, compared time.Time
}

func (a *Activities) unseenWrites(written []protocol.WrittenPod) *unseenWrites {
	now := a.Clock.Now()
	return &unseenWrites{Activities: a, pods: written, since: now, compared: now}
}

func (w *unseenWrites) add(written []protocol.WrittenPod) {
	if len(w.pods) == 0 {
		now := w.Clock.Now()
		w.since, w.compared = now, now
	}
	w.pods = append(w.pods, written...)
}

// count removes the writes that the cache shows, and counts the remaining writes. If a pod is missing in the
// cache, count reads the pod from the API server, because the cache may not show the creation of the pod yet.
// Only a pod that is missing in both counts as gone.
func (w *unseenWrites) count(ctx context.Context) (int, error) {
	now := w.Clock.Now()
	compare := now.Sub(w.since) >= liveReadAfter && now.Sub(w.compared) >= liveReadAfter
	if compare {
		w.compared = now
	}
	var left []protocol.WrittenPod
	for _, pod := range w.pods {
		shown, err := w.cacheShows(ctx, &pod, compare)
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

// cacheShows reports whether the cache shows a write, or the pod is gone. If the write is uncertain, or
// compare is set, the cache must show at least the current resourceVersion of the pod in the API server.
func (a *Activities) cacheShows(ctx context.Context, written *protocol.WrittenPod, compare bool) (bool, error) {
	if written.ResourceVersion == "" || compare {
		pod, err := readPod(ctx, a.Live, written.PodReference)
		if err != nil || pod == nil {
			return err == nil, err
		}
		written.ResourceVersion = pod.ResourceVersion
	}
	pod, err := readPod(ctx, a.Cache, written.PodReference)
	if err != nil {
		return false, err
	}
	if pod != nil {
		order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, written.ResourceVersion)
		return order >= 0, err
	}
	pod, err = readPod(ctx, a.Live, written.PodReference)
	return err == nil && pod == nil, err
}
