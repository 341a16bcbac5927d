package pods

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/webhook/fallback"
)

// setOfRevision finds the cached revisions of a SidecarSet.
const setOfRevision = "sidecarset"

// IndexRevisions has a cache find revisions by their SidecarSet.
func IndexRevisions(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &appsv1.ControllerRevision{}, setOfRevision, func(o client.Object) []string {
		if name := o.GetLabels()[v1alpha1.SidecarSetNameLabel]; name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index revisions by SidecarSet: %w", err)
	}
	return nil
}

// revisionSource reads pinned revisions.
type revisionSource struct {
	fallback.Reader
	systemNamespace string
}

// pinnedSet is a set prepared with the content of a revision.
type pinnedSet struct {
	name, resourceVersion string
	set                   *inject.Set
}

// resolve returns of each set the version that the pod gets (SPEC §4.11).
func (r revisionSource) resolve(ctx context.Context, pod *corev1.Pod, sets []*compiledSet) ([]*inject.Set, error) {
	versions := make([]*inject.Set, 0, len(sets))
	for _, set := range sets {
		if set.paused() {
			continue
		}
		if set.unreadable != nil {
			return nil, inject.SetError{Set: set.name, Err: fmt.Errorf(
				"SidecarSet %s may be meant for this pod: %w; correct it, or set spec.injectionStrategy.paused", set.name, set.unreadable)}
		}
		version, err := r.version(ctx, pod, set)
		if err != nil {
			return nil, inject.SetError{Set: set.name, Err: err}
		}
		versions = append(versions, version)
	}
	return versions, nil
}

func (r revisionSource) version(ctx context.Context, pod *corev1.Pod, set *compiledSet) (*inject.Set, error) {
	usesPinned, err := inject.UsesPinned(set.declared, pod)
	switch {
	case err != nil:
		return nil, fmt.Errorf("SidecarSet %s: %w", set.name, err)
	case usesPinned:
		return r.pinned(ctx, set)
	}
	return set.newest, set.err
}

func (r revisionSource) pinned(ctx context.Context, set *compiledSet) (*inject.Set, error) {
	list, err := r.ofSet(ctx, set.name)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: look for the pinned revision: %w", set.name, err)
	}
	found, err := revision.FindPinned(set.declared, revision.Of(set.declared, list.Items))
	if err != nil {
		return nil, err
	}
	if last := set.pinned.Load(); last != nil && last.name == found.Name && last.resourceVersion == found.ResourceVersion {
		return last.set, nil
	}
	prepared, err := inject.PreparePinned(set.declared, found)
	if err != nil {
		return nil, err
	}
	set.pinned.Store(&pinnedSet{name: found.Name, resourceVersion: found.ResourceVersion, set: prepared})
	return prepared, nil
}

// ofSet lists the revisions of a set. Those of the cache are only read.
func (r revisionSource) ofSet(ctx context.Context, set string) (*appsv1.ControllerRevisionList, error) {
	list, within := &appsv1.ControllerRevisionList{}, client.InNamespace(r.systemNamespace)
	if r.Stale() == nil {
		return list, r.Cached.List(ctx, list, within, client.MatchingFields{setOfRevision: set}, client.UnsafeDisableDeepCopy)
	}
	ctx, cancel := context.WithTimeout(ctx, fallback.Timeout)
	defer cancel()
	return list, r.Live.List(ctx, list, within, client.MatchingLabels{v1alpha1.SidecarSetNameLabel: set})
}
