package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/outrigger/outrigger/kube/watches"
)

// MissingKind reports whether a request failed because the cluster has no CustomResourceDefinition of
// the kind.
func MissingKind(err error) bool {
	var status apierrors.APIStatus
	if meta.IsNoMatchError(err) {
		return true
	}
	// If discovery is cached or forbidden, the request fails with NotFound, and the error has no resource
	// name.
	return apierrors.IsNotFound(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

// OptionalCache adds a separate cache for a kind to mgr, and returns the cache. If the kind were in the main
// cache, a process without the permission to watch the kind would not start. An example is a process whose
// image is updated before the ClusterRole. OptionalCache returns nil in a cluster without the definition of
// the kind, because a watch of a missing kind never starts. With a namespace, the cache contains only objects
// of this namespace.
func OptionalCache(mgr manager.Manager, kind schema.GroupVersionKind, namespace string) (cache.Cache, error) {
	_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find out whether %s is installed: %w", kind.Kind, err)
	}
	o := cache.Options{
		NewInformer: watches.NewOptionalInformer,
		HTTPClient:  mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultTransform: cache.TransformStripManagedFields(),
	}
	if namespace != metav1.NamespaceAll {
		o.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	watched, err := cache.New(mgr.GetConfig(), o)
	if err == nil {
		err = mgr.Add(watched)
	}
	if err != nil {
		return nil, fmt.Errorf("set up the watch of %s: %w", kind.Kind, err)
	}
	return watched, nil
}

// installInterval is the time between two checks whether a missing kind is installed.
const installInterval = 10 * time.Second

// WhenInstalled calls start with a cache for a kind. In a cluster without the definition of the kind,
// WhenInstalled returns immediately, and calls start once the definition is installed. installed reports
// whether the definition was already installed.
func WhenInstalled(mgr manager.Manager, kind schema.GroupVersionKind, start func(cache.Cache) error) (installed bool, err error) {
	watched, err := OptionalCache(mgr, kind, metav1.NamespaceAll)
	if err != nil {
		return false, err
	}
	if watched != nil {
		return true, start(watched)
	}
	return false, Later(mgr, func(context.Context) (bool, error) {
		watched, err := OptionalCache(mgr, kind, metav1.NamespaceAll)
		if err != nil {
			mgr.GetLogger().Info("cannot find out whether a kind is installed; trying again", "kind", kind.Kind, "cause", err.Error())
		}
		if watched == nil {
			return false, nil
		}
		mgr.GetLogger().Info("a kind was installed after the start of the process", "kind", kind.Kind)
		return true, start(watched)
	})
}

// Later calls the function start every installInterval, until start returns true. If start returns an error,
// the process ends.
func Later(mgr manager.Manager, start func(context.Context) (done bool, err error)) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		err := wait.PollUntilContextCancel(ctx, installInterval, true, start)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}))
}
