package observer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// retryInterval is the pause before the API server is asked again.
const retryInterval = 100 * time.Millisecond

// event is a change of one object. The API server orders the writes of all kinds by
// resourceVersion.
type event struct {
	object  client.Object
	version uint64
	seen    time.Time
	deleted bool
	// listed events come from a list: earlier changes are unknown.
	listed bool
}

// feed follows the objects of one kind. An informer would back off for many seconds while the
// API server is down, and miss the changes afterwards.
type feed struct {
	client client.WithWatch
	list   func() client.ObjectList
	events chan<- event
	// up is the time since which the watch works, in nanoseconds since 1970; zero while it is
	// down.
	up    atomic.Int64
	mu    sync.Mutex
	known map[types.UID]client.Object
	// reached is the newest version that was passed on; gaps are the ranges of versions that
	// only lists cover.
	reached uint64
	gaps    []gap
}

// gap is a range of versions, of which only the last was listed.
type gap struct {
	after, until uint64
	listed       time.Time
}

// missed reports whether a state of the objects at a version, or since an earlier moment, may
// be unknown.
func (f *feed) missed(version uint64, since time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.gaps, func(g gap) bool { return g.after < version && (version <= g.until || g.listed.After(since)) })
}

// current is the version up to which the feed has passed on everything; zero if unknown. A
// new watch may be silent for a while: a restarted API server fills its caches first.
func (f *feed) current(ctx context.Context) uint64 {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	list := f.list()
	if err := f.client.List(ctx, list); err != nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	behind := meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok {
			return errors.New("the watch is behind")
		}
		if known := f.known[object.GetUID()]; known == nil || numbered(known) < numbered(object) {
			return errors.New("the watch is behind")
		}
		return nil
	})
	version, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if behind != nil || err != nil {
		return 0
	}
	return version
}

// numbered is the resourceVersion of an object as a number; anything else is 0.
func numbered(object client.Object) uint64 {
	version, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	return version
}

func newFeed(c client.WithWatch, list func() client.ObjectList, events chan<- event) *feed {
	return &feed{client: c, list: list, events: events, known: map[types.UID]client.Object{}}
}

// run follows until ctx ends.
func (f *feed) run(ctx context.Context) {
	version := ""
	for ctx.Err() == nil {
		if version == "" {
			if listed, err := f.relist(ctx); err == nil {
				version = listed
			}
		}
		if version != "" {
			version = f.follow(ctx, version)
		}
		f.up.Store(0)
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
		}
	}
}

// follow watches from a version, and returns the version to continue from, which is empty when
// the API server has compacted it.
func (f *feed) follow(ctx context.Context, version string) string {
	options := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}}
	watching, err := f.client.Watch(ctx, f.list(), options)
	if err != nil {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return ""
		}
		return version
	}
	defer watching.Stop()
	f.up.Store(time.Now().UnixNano())
	for event := range watching.ResultChan() {
		object, ok := event.Object.(client.Object)
		if event.Type == watch.Error || !ok {
			if err := apierrors.FromObject(event.Object); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return ""
			}
			return version
		}
		version = object.GetResourceVersion()
		f.mu.Lock()
		f.reached = max(f.reached, numbered(object))
		f.mu.Unlock()
		if event.Type == watch.Bookmark {
			continue
		}
		f.pass(object, event.Type == watch.Deleted, false)
	}
	return version
}

// relist passes on the changes since the last event, and returns the version to watch from.
func (f *feed) relist(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	list := f.list()
	// A read from etcd, not from a cache of the API server that may lag.
	if err := f.client.List(ctx, list); err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	f.skipTo(list.GetResourceVersion(), time.Now())
	missing := maps.Clone(f.known) // only this goroutine writes it
	err := meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok {
			return errors.New("an item is no object")
		}
		before := missing[object.GetUID()]
		delete(missing, object.GetUID())
		if before == nil || before.GetResourceVersion() != object.GetResourceVersion() {
			f.pass(object, false, true)
		}
		return nil
	})
	for _, object := range missing {
		gone, ok := object.DeepCopyObject().(client.Object)
		if !ok {
			continue
		}
		gone.SetResourceVersion(list.GetResourceVersion())
		f.pass(gone, true, true)
	}
	return list.GetResourceVersion(), err
}

// skipTo records that a list covers all changes since the last event.
func (f *feed) skipTo(version string, listed time.Time) {
	until, _ := strconv.ParseUint(version, 10, 64) // as in numbered
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gaps = append(f.gaps, gap{after: f.reached, until: until, listed: listed})
	f.reached = max(f.reached, until)
}

func (f *feed) pass(object client.Object, deleted, listed bool) {
	// The event is queued before current can count it.
	f.events <- event{object: object, version: numbered(object), seen: time.Now(), deleted: deleted, listed: listed}
	f.mu.Lock()
	defer f.mu.Unlock()
	if deleted {
		delete(f.known, object.GetUID())
	} else {
		f.known[object.GetUID()] = object
	}
}

// upFor is how long the watch has worked; zero while it is down.
func (f *feed) upFor() time.Duration {
	since := f.up.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
}
