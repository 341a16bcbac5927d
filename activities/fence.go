package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// refreshAge is when what the API server said of a set is asked for again,
	// and maxAge how old it may be when a pod is written.
	refreshAge = time.Second
	maxAge     = 2 * time.Second
)

// liveSet reads a set past the cache, which may be half a minute behind after
// an outage while the pods' is current again.
type liveSet struct {
	*Activities
	reference protocol.SetReference

	mu    sync.Mutex
	asked time.Time
	set   *v1alpha1.SidecarSet
}

// get returns the set as it was at most maxAge ago, or nil when it is gone.
func (l *liveSet) get(ctx context.Context) (*v1alpha1.SidecarSet, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.asked.IsZero() && l.Clock.Since(l.asked) < refreshAge {
		return l.set, nil
	}
	asked := l.Clock.Now()
	set := &v1alpha1.SidecarSet{}
	err := l.Live.Get(ctx, types.NamespacedName{Name: l.reference.Name}, set)
	switch {
	case apierrors.IsNotFound(err):
		set = nil
	case err != nil:
		return nil, fmt.Errorf("read SidecarSet %s: %w", l.reference.Name, err)
	case set.UID != l.reference.UID || set.DeletionTimestamp != nil:
		set = nil
	}
	if late := l.Clock.Since(asked); late > maxAge {
		return nil, fmt.Errorf("read SidecarSet %s: the answer took %s and is too old to act on", l.reference.Name, late)
	}
	l.asked, l.set = asked, set
	return set, nil
}

// fence stands before every write: Temporal cannot stop an activity that runs
// already, so the set itself must still want this, and this run.
type fence struct {
	set        liveSet
	generation int64
	claim      claim
}

func (a *Activities) newFence(set protocol.SetReference, generation int64, run string) *fence {
	return &fence{
		set:        liveSet{Activities: a, reference: set},
		generation: generation,
		claim:      claim{Activities: a, set: set, run: run},
	}
}

// check returns the set, or says why its pods must not be upgraded any more.
func (f *fence) check(ctx context.Context) (set *v1alpha1.SidecarSet, stopped string, err error) {
	set, err = f.set.get(ctx)
	switch {
	case err != nil:
		return nil, "", err
	case set == nil:
		return nil, "the SidecarSet is gone", nil
	case set.Generation != f.generation:
		return nil, fmt.Sprintf("generation is %d", set.Generation), nil
	case set.Spec.UpdateStrategy.Paused:
		return nil, "paused", nil
	case set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return nil, "updates are off", nil
	}
	held, err := f.claim.held(ctx)
	if err == nil && !held {
		return nil, "another run has taken over", nil
	}
	return set, "", err
}
