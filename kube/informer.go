package kube

import (
	"context"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
)

// reconnectBackoff is the wait of a reflector between attempts. The default of up to
// a minute would leave caches stale long after the API server is back.
func reconnectBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Cap: 800 * time.Millisecond, Jitter: 0.25, Steps: math.MaxInt32}
}

// informer is a SharedIndexInformer with a reflector of its own, because the backoff
// of the one inside cannot be set. The one inside watches the relay, which never
// fails.
type informer struct {
	toolscache.SharedIndexInformer
	relay     *relay
	reflector *toolscache.Reflector
}

func newInformer(lists toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) *informer {
	relay := newRelay(object)
	return &informer{
		SharedIndexInformer: toolscache.NewSharedIndexInformer(relay, object, resync, indexers),
		relay:               relay,
		reflector:           toolscache.NewReflectorWithOptions(lists, object, relay, toolscache.ReflectorOptions{Backoff: reconnectBackoff()}),
	}
}

// Run is RunWithContext for callers that have a channel.
func (i *informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext returns once the context has ended.
func (i *informer) RunWithContext(ctx context.Context) {
	i.relay.done = ctx.Done()
	var reflecting sync.WaitGroup
	reflecting.Go(func() { i.reflector.RunWithContext(ctx) })
	i.SharedIndexInformer.RunWithContext(ctx)
	reflecting.Wait()
}

// SetTransform has objects transformed in the relay, before anybody else has them: they
// may then be changed in place, and those of the first list are while it still arrives.
func (i *informer) SetTransform(transform toolscache.TransformFunc) error {
	i.relay.transform = transform
	return nil
}

// LastSyncResourceVersion is the resourceVersion up to which the store shows all writes;
// empty while that is not known, as while what a later list has changed arrives. It is safe
// for concurrent use.
func (i *informer) LastSyncResourceVersion() string {
	shown := i.GetIndexer().LastStoreSyncResourceVersion()
	if !i.relay.settled(shown) {
		return ""
	}
	return shown
}
