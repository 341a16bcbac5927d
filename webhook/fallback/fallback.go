// Package fallback reads from a cache, or from the API server while the cache may be stale.
package fallback

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube/revisions"
)

// Timeout limits a read from the API server within an admission request.
const Timeout = 2 * time.Second

// Reader reads objects of one type.
type Reader struct {
	// Cached is read while Stale returns nil, and Live is read otherwise.
	Cached, Live client.Reader
	// Stale returns an error while the cache may be stale, and nil otherwise.
	Stale func() error
}

// List lists objects from the cache or, while the cache may be stale, from the API server. Objects of the
// cache are not copied, so callers must not change the objects.
func (r Reader) List(ctx context.Context, into client.ObjectList) error {
	if r.Stale() == nil {
		return r.Cached.List(ctx, into, client.UnsafeDisableDeepCopy)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return r.Live.List(ctx, into)
}

// Revisions reads the revisions of SidecarSets.
type Revisions struct {
	Reader
	// SystemNamespace is the namespace of the revisions.
	SystemNamespace string
}

// Of returns the revisions of a SidecarSet. Callers must not change the revisions.
func (r Revisions) Of(ctx context.Context, set string) ([]appsv1.ControllerRevision, error) {
	if r.Stale() != nil {
		ctx, cancel := context.WithTimeout(ctx, Timeout)
		defer cancel()
		return r.LiveOf(ctx, set)
	}
	return revisions.List(ctx, r.Cached, r.SystemNamespace, set)
}

// LiveOf returns the revisions of a SidecarSet from the API server.
func (r Revisions) LiveOf(ctx context.Context, set string) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := r.Live.List(ctx, &list, client.InNamespace(r.SystemNamespace), client.MatchingLabels{v1alpha1.SidecarSetNameLabel: set})
	return list.Items, err
}
