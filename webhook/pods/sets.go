package pods

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/webhook/fallback"
	"github.com/outrigger/outrigger/webhook/review"
)

// liveIndexTTL is the time for which requests reuse the result of a live list.
const liveIndexTTL = time.Second

// setSource provides the index of SidecarSets. The index contains the SidecarSets of the informer
// or, while the cache is stale, the SidecarSets of a live list.
type setSource struct {
	fallback.Reader
	informed *setIndex
	log      logr.Logger
	clock    clock.PassiveClock
	listing  singleflight.Group
	listed   atomic.Pointer[liveIndex]
}

// liveIndex is the index of one live list.
type liveIndex struct {
	requested time.Time
	index     *setIndex
}

// index returns the current index. An error is a review.UndecidedError.
func (s *setSource) index(ctx context.Context) (*setIndex, error) {
	stale := s.Stale()
	if stale == nil {
		return s.informed, nil
	}
	if last := s.listed.Load(); last != nil && s.clock.Since(last.requested) < liveIndexTTL {
		return last.index, nil
	}
	// Concurrent requests share one list, even if the first request is canceled.
	answer := s.listing.DoChan("", func() (any, error) { return s.list(context.WithoutCancel(ctx)) })
	select {
	case result := <-answer:
		if listed, ok := result.Val.(*liveIndex); ok && result.Err == nil {
			return listed.index, nil
		}
		return nil, undecided(stale, result.Err)
	case <-ctx.Done():
		return nil, undecided(stale, ctx.Err())
	}
}

func undecided(stale, err error) error {
	return review.UndecidedError{Err: fmt.Errorf("cannot decide whether this pod gets sidecars: %w; list SidecarSets: %w", stale, err)}
}

func (s *setSource) list(ctx context.Context) (*liveIndex, error) {
	ctx, cancel := context.WithTimeout(ctx, fallback.Timeout)
	defer cancel()
	listed := &liveIndex{requested: s.clock.Now(), index: newSetIndex(s.log, s.informed.metrics)}
	var list v1alpha1.SidecarSetList
	if err := s.Live.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		listed.index.put(&list.Items[i])
	}
	s.listed.Store(listed)
	return listed, nil
}
