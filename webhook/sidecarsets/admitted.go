package sidecarsets

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// A set that was admitted is stored and in the cache within milliseconds, unless
// somebody else refuses it.
const (
	admittedTimeout      = 300 * time.Millisecond
	admittedPollInterval = 5 * time.Millisecond
)

// admittedSet is the newest set that was admitted here. Two sets applied in a row
// must see each other, and the cache comes a moment late.
type admittedSet struct {
	mu   sync.Mutex
	name string
	// hash is that of the content.
	hash string
}

func (a *admittedSet) remember(set *v1alpha1.SidecarSet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.name, a.hash = set.Name, set.Annotations[v1alpha1.HashAnnotation]
}

// awaitCached waits until the cache holds it, once and not for long: it is only a
// hint, that whoever reaches the webhook can give.
func (a *admittedSet) awaitCached(ctx context.Context, cached client.Reader) {
	a.mu.Lock()
	name, hash := a.name, a.hash
	a.mu.Unlock()
	if name == "" {
		return
	}
	_ = wait.PollUntilContextTimeout(ctx, admittedPollInterval, admittedTimeout, true, func(ctx context.Context) (bool, error) {
		set := &v1alpha1.SidecarSet{}
		err := cached.Get(ctx, client.ObjectKey{Name: name}, set, client.UnsafeDisableDeepCopy)
		return err == nil && set.Annotations[v1alpha1.HashAnnotation] == hash, nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.name == name && a.hash == hash {
		a.name = ""
	}
}
