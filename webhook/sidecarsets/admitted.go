package sidecarsets

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// An admitted SidecarSet reaches the cache within milliseconds, unless another admission check rejects the
// SidecarSet.
const (
	admittedTimeout      = 300 * time.Millisecond
	admittedPollInterval = 5 * time.Millisecond
)

// admittedSet is the last SidecarSet that this process admitted. If two SidecarSets are applied in succession,
// the validation of the second SidecarSet must detect conflicts with the first SidecarSet, even if the cache
// is not up to date.
type admittedSet struct {
	mu         sync.Mutex
	name       string
	uid        types.UID
	generation int64
}

func (a *admittedSet) remember(set *v1alpha1.SidecarSet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.name, a.uid, a.generation = set.Name, set.UID, set.Generation
}

// awaitCached waits at most admittedTimeout until the cache contains the last admitted SidecarSet. Later calls
// do not wait for the same SidecarSet again. awaitCached returns no error, because the SidecarSet may never be
// stored: another admission check may reject the SidecarSet, or the review may come from a client that is not
// an API server.
func (a *admittedSet) awaitCached(ctx context.Context, cached client.Reader) {
	a.mu.Lock()
	name, uid, generation := a.name, a.uid, a.generation
	a.mu.Unlock()
	if name == "" {
		return
	}
	_ = wait.PollUntilContextTimeout(ctx, admittedPollInterval, admittedTimeout, true, func(ctx context.Context) (bool, error) {
		set := &v1alpha1.SidecarSet{}
		err := cached.Get(ctx, client.ObjectKey{Name: name}, set, client.UnsafeDisableDeepCopy)
		return err == nil && set.UID == uid && set.Generation >= generation, nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.uid == uid && a.generation == generation {
		a.name = ""
	}
}
