package activities

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/outrigger/outrigger/api/protocol"
)

// cacheShows tells whether the cache has caught up with writes that another
// worker, or this one, has made: only then may it be planned from. A pod that
// the cache lacks counts as gone only when the API server says so, because a
// late cache may not have seen its creation either.
func (a *Activities) cacheShows(ctx context.Context, written []protocol.WrittenPod) (bool, error) {
	for _, pod := range written {
		shown, err := a.cacheShowsPod(ctx, pod)
		if err != nil {
			return false, fmt.Errorf("look for the write to pod %s: %w", pod.PodReference, err)
		}
		if !shown {
			return false, nil
		}
	}
	return true, nil
}

func (a *Activities) cacheShowsPod(ctx context.Context, written protocol.WrittenPod) (bool, error) {
	key := types.NamespacedName{Namespace: written.Namespace, Name: written.Name}
	var pod corev1.Pod
	err := a.Cache.Get(ctx, key, &pod)
	if err == nil && pod.UID == written.UID {
		order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, written.ResourceVersion)
		return order >= 0, err
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	err = a.Live.Get(ctx, key, &pod)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && pod.UID != written.UID, err
}
