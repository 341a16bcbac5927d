package activities

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
)

// notShown lists those of the written pods that the cache does not show as they
// were written, by another worker or this one: it lags behind, and must not be
// planned from. A pod that the cache lacks counts as gone only when the API
// server says so, because a late cache may not have seen its creation either.
func (a *Activities) notShown(ctx context.Context, written []protocol.WrittenPod) ([]protocol.WrittenPod, error) {
	var left []protocol.WrittenPod
	for _, pod := range written {
		shown, err := a.cacheShows(ctx, &pod)
		if err != nil {
			return nil, fmt.Errorf("look for the write to pod %s: %w", pod.PodReference, err)
		}
		if !shown {
			left = append(left, pod)
		}
	}
	return left, nil
}

// cacheShows tells whether the cache has a pod as it was written. One that may
// have been written must be in the cache as the API server has it now.
func (a *Activities) cacheShows(ctx context.Context, written *protocol.WrittenPod) (bool, error) {
	if written.ResourceVersion == "" {
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
