package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// liveReadTimeout bounds a read from the API server that a pod waits for.
	liveReadTimeout = 2 * time.Second
	// liveFor is how long pods are decided about from the sets of one read.
	liveFor = time.Second
)

// errUndecided is a pod that nobody can decide about, so that the failurePolicy does.
var errUndecided = errors.New("whether this pod gets sidecars is not known")

// fresh reads objects of one type: from the cache while the API server tells of
// their changes, and from the API server itself while it does not.
type fresh struct {
	cached, live client.Reader
	// stale is nil while the cache may be read.
	stale func() error
}

// list only reads what the cache holds.
func (f fresh) list(ctx context.Context, into client.ObjectList) error {
	if f.stale() == nil {
		return f.cached.List(ctx, into, client.UnsafeDisableDeepCopy)
	}
	ctx, cancel := context.WithTimeout(ctx, liveReadTimeout)
	defer cancel()
	return f.live.List(ctx, into)
}

// setsNow finds SidecarSets in the index of the cache, or of a list of its own.
type setsNow struct {
	fresh
	index   *setIndex
	log     logr.Logger
	clock   clock.PassiveClock
	reading singleflight.Group
	last    atomic.Pointer[listedSets]
}

// listedSets are those of a list that the API server was asked for at this time.
type listedSets struct {
	asked time.Time
	index *setIndex
}

// sets returns the index to look into. An error is errUndecided.
func (s *setsNow) sets(ctx context.Context) (*setIndex, error) {
	stale := s.stale()
	if stale == nil {
		return s.index, nil
	}
	if last := s.last.Load(); last != nil && s.clock.Since(last.asked) < liveFor {
		return last.index, nil
	}
	// All pods that wait share one read, whoever of them gives up.
	answer := s.reading.DoChan("", func() (any, error) { return s.list(context.WithoutCancel(ctx)) })
	select {
	case result := <-answer:
		if listed, ok := result.Val.(*listedSets); ok && result.Err == nil {
			return listed.index, nil
		}
		return nil, fmt.Errorf("%w: %w; list SidecarSets: %w", errUndecided, stale, result.Err)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w; list SidecarSets: %w", errUndecided, stale, ctx.Err())
	}
}

func (s *setsNow) list(ctx context.Context) (*listedSets, error) {
	ctx, cancel := context.WithTimeout(ctx, liveReadTimeout)
	defer cancel()
	listed := &listedSets{asked: s.clock.Now(), index: newSetIndex(s.log, s.index.metrics)}
	var list v1alpha1.SidecarSetList
	if err := s.live.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		listed.index.put(&list.Items[i])
	}
	s.last.Store(listed)
	return listed, nil
}
