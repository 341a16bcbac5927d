package kube

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// MissingKind reports whether a request failed because the cluster has no CustomResourceDefinition of
// the kind.
func MissingKind(err error) bool {
	var status apierrors.APIStatus
	if meta.IsNoMatchError(err) {
		return true
	}
	// If discovery was cached or is forbidden, the request fails with NotFound without a resource
	// name.
	return apierrors.IsNotFound(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

// OptionalCache adds a cache of its own for a kind to a manager. Otherwise, a process without the
// permission to watch the kind, such as one whose image is updated before the ClusterRole, would not
// start. The cache is nil in a cluster without the definition of the kind, because a watch of a missing
// kind never starts. With namespaces, the cache contains only objects of these namespaces.
func OptionalCache(mgr manager.Manager, kind schema.GroupVersionKind, namespaces ...string) (cache.Cache, error) {
	_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find out whether %s is installed: %w", kind.Kind, err)
	}
	o := cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultTransform: cache.TransformStripManagedFields(),
	}
	for _, namespace := range namespaces {
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
