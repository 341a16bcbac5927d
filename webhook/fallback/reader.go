package fallback

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Timeout bounds a read from the API server that a request waits for.
const Timeout = 2 * time.Second

// Reader reads objects of one type.
type Reader struct {
	// Cached is read while Stale returns nil, and Live while it does not.
	Cached, Live client.Reader
	// Stale returns why the cache may be out of date, or nil.
	Stale func() error
}

// List lists objects that the caller must not change: those of the cache are shared.
func (r Reader) List(ctx context.Context, into client.ObjectList) error {
	if r.Stale() == nil {
		return r.Cached.List(ctx, into, client.UnsafeDisableDeepCopy)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return r.Live.List(ctx, into)
}
