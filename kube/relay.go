package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// relay connects two reflectors: it is the ReflectorStore of one, and the
// ListerWatcher that the other lists once and then watches without end. A list that
// the first one has to repeat reaches the second as the changes since.
type relay struct {
	transform toolscache.TransformFunc
	// done ends sends that wait for a receiver.
	done   <-chan struct{}
	first  chan runtime.Object
	events chan watch.Event
	// known is nil before the first list. The objects are those of the cache.
	known map[string]runtime.Object
	// kind is an empty object, and listed the resourceVersion of the last list.
	kind   runtime.Object
	listed atomic.Pointer[string]
}

func newRelay(kind runtime.Object) *relay {
	return &relay{kind: kind, first: make(chan runtime.Object, 1), events: make(chan watch.Event)}
}

// Transformer lets the reflector strip objects while the first list arrives.
func (r *relay) Transformer() toolscache.TransformFunc { return r.transform }

// Add passes on a new object. It implements toolscache.ReflectorStore, as do Update,
// Delete, Replace and Resync.
func (r *relay) Add(object any) error { return r.put(watch.Added, object) }

// Update passes on a changed object.
func (r *relay) Update(object any) error { return r.put(watch.Modified, object) }

// Delete passes on the last state of an object.
func (r *relay) Delete(object any) error {
	key, gone, err := r.transformed(object)
	if err != nil {
		return err
	}
	delete(r.known, key)
	r.send(watch.Deleted, gone)
	return nil
}

// Bookmark passes on how recent the changes are.
func (r *relay) Bookmark(resourceVersion string) error {
	mark := r.kind.DeepCopyObject()
	object, err := meta.Accessor(mark)
	if err != nil {
		return fmt.Errorf("bookmark a %T: %w", mark, err)
	}
	object.SetResourceVersion(resourceVersion)
	r.send(watch.Bookmark, mark)
	return nil
}

// Resync has nothing to do: the informer resyncs its handlers.
func (r *relay) Resync() error { return nil }

// Replace passes on the first list as it is, and of later ones the difference:
// deletions, and then what was written first, as in a watch, so that a cache which
// shows a write shows all earlier ones to objects that are still there, but for those that
// were written again.
func (r *relay) Replace(objects []any, resourceVersion string) error {
	r.listed.Store(&resourceVersion)
	before, known := r.known, make(map[string]runtime.Object, len(objects))
	list := &metainternalversion.List{ListMeta: metav1.ListMeta{ResourceVersion: resourceVersion}}
	var changes []watch.Event
	for _, object := range objects {
		key, listed, err := r.transformed(object)
		if err != nil {
			return err
		}
		known[key] = listed
		if before == nil {
			list.Items = append(list.Items, listed)
			continue
		}
		if old := before[key]; old == nil {
			changes = append(changes, watch.Event{Type: watch.Added, Object: listed})
		} else if same(old, listed) {
			known[key] = old
		} else {
			changes = append(changes, watch.Event{Type: watch.Modified, Object: listed})
		}
	}
	r.known = known
	if before == nil {
		r.first <- list
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if known[key] == nil {
			r.send(watch.Deleted, before[key])
		}
	}
	slices.SortStableFunc(changes, func(a, b watch.Event) int { return compareVersions(a.Object, b.Object) })
	for _, change := range changes {
		r.send(change.Type, change.Object)
	}
	return r.Bookmark(resourceVersion)
}

// settled reports whether a store at a resourceVersion shows all of the last list.
func (r *relay) settled(resourceVersion string) bool {
	listed := r.listed.Load()
	if listed == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(resourceVersion, *listed)
	return err == nil && order >= 0
}

// compareVersions orders objects by when they were written. Those that do not say
// stay where they are.
func compareVersions(a, b runtime.Object) int {
	first, errFirst := meta.Accessor(a)
	second, errSecond := meta.Accessor(b)
	if errFirst != nil || errSecond != nil {
		return 0
	}
	order, err := resourceversion.CompareResourceVersion(first.GetResourceVersion(), second.GetResourceVersion())
	if err != nil {
		return 0
	}
	return order
}

func (r *relay) put(kind watch.EventType, object any) error {
	key, changed, err := r.transformed(object)
	if err != nil {
		return err
	}
	r.known[key] = changed
	r.send(kind, changed)
	return nil
}

func (r *relay) send(kind watch.EventType, object runtime.Object) {
	select {
	case r.events <- watch.Event{Type: kind, Object: object}:
	case <-r.done:
	}
}

// transformed returns an object as it is cached, and its key.
func (r *relay) transformed(object any) (string, runtime.Object, error) {
	if r.transform != nil {
		kept, err := r.transform(object)
		if err != nil {
			return "", nil, fmt.Errorf("strip a %T for the cache: %w", object, err)
		}
		object = kept
	}
	return keyed(object)
}

func keyed(object any) (string, runtime.Object, error) {
	typed, ok := object.(runtime.Object)
	if !ok {
		return "", nil, fmt.Errorf("the API server sent a %T, which is no object", object)
	}
	key, err := toolscache.MetaNamespaceKeyFunc(typed)
	if err != nil {
		return "", nil, fmt.Errorf("name a %T: %w", object, err)
	}
	return key, typed, nil
}

// same reports whether two objects of one name have the same UID and resourceVersion.
func same(a, b runtime.Object) bool {
	before, errBefore := meta.Accessor(a)
	after, errAfter := meta.Accessor(b)
	return errBefore == nil && errAfter == nil &&
		before.GetUID() == after.GetUID() && before.GetResourceVersion() == after.GetResourceVersion()
}

// IsWatchListSemanticsUnSupported makes the informer list, instead of a watch that
// streams the initial list.
func (r *relay) IsWatchListSemanticsUnSupported() bool { return true }

// List is for reflectors that pass no context.
func (r *relay) List(options metav1.ListOptions) (runtime.Object, error) {
	return r.ListWithContext(context.Background(), options)
}

// ListWithContext waits for the first list.
func (r *relay) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	select {
	case list := <-r.first:
		return list, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Watch returns the changes after the first list.
func (r *relay) Watch(metav1.ListOptions) (watch.Interface, error) {
	return watch.NewProxyWatcher(r.events), nil
}
