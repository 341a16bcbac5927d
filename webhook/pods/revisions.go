package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/revision"
)

// recordedSet is a SidecarSet, prepared with the content of a revision.
type recordedSet struct {
	name, resourceVersion string
	set                   *inject.Set
}

// resolve returns the version of each SidecarSet for the pod of a request (SPEC §4.11, §11.5). If former
// revisions are among them, newest contains the newest content in place of these revisions.
func (h *Handler) resolve(ctx context.Context, request types.UID, pod *corev1.Pod, sets []*compiledSet) (versions, newest []*inject.Set, err error) {
	versions = make([]*inject.Set, 0, len(sets))
	for _, set := range sets {
		if set.paused() {
			continue
		}
		version, isFormer, err := h.version(ctx, request, pod, set)
		if err != nil {
			return nil, nil, inject.SetError{Set: set.name, Err: err}
		}
		instead := version
		if isFormer && set.newestErr == nil {
			instead = set.newest
		}
		if newest == nil && instead != version {
			newest = slices.Clone(versions)
		}
		versions = append(versions, version)
		if newest != nil {
			newest = append(newest, instead)
		}
	}
	return versions, newest, nil
}

func (h *Handler) version(ctx context.Context, request types.UID, pod *corev1.Pod, set *compiledSet) (version *inject.Set, isFormer bool, err error) {
	if set.scopeErr != nil {
		return nil, false, fmt.Errorf("SidecarSet %s could match this pod, but its selectors are invalid: %w; correct the SidecarSet, or set its spec.injectionStrategy.paused to true", set.name, set.scopeErr)
	}
	usesPinned, err := inject.UsesPinned(set.declared, pod, request)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("SidecarSet %s: %w", set.name, err)
	case usesPinned:
		version, err = h.pinned(ctx, set)
		return version, false, err
	case set.former != nil && !h.newPods(set).Includes(pod, request):
		version, err = h.former(ctx, set)
		return version, !set.quarantined, err
	}
	return set.newest, false, set.newestErr
}

func (h *Handler) pinned(ctx context.Context, set *compiledSet) (*inject.Set, error) {
	sorted, err := h.revisionsOf(ctx, set)
	if err != nil {
		return nil, err
	}
	found, err := revision.FindPinned(set.declared, sorted)
	if errors.Is(err, revision.ErrNoSuchRevision) && revision.PinsOwnVersion(set.declared) {
		// The operator has not recorded the newest version yet.
		return set.newest, set.newestErr
	}
	if err != nil {
		return nil, err
	}
	return set.withContentOf(found)
}

// former returns the former revision. If the former revision is missing, or if revisions cannot be
// listed or read, former returns the newest content, because a policy must not stop the creation of
// pods.
func (h *Handler) former(ctx context.Context, set *compiledSet) (*inject.Set, error) {
	sorted, err := h.revisionsOf(ctx, set)
	if err != nil {
		h.sets.log.Error(err, "a new pod gets the newest content: the last good revision cannot be listed", "sidecarset", set.name)
		return set.newest, set.newestErr
	}
	found := revision.Named(sorted, set.former.Revision)
	if found == nil {
		return set.newest, set.newestErr
	}
	recorded, err := set.withContentOf(found)
	if err != nil {
		h.sets.log.Error(err, "a new pod gets the newest content: the last good revision cannot be read", "sidecarset", set.name)
		return set.newest, set.newestErr
	}
	return recorded, nil
}

func (h *Handler) revisionsOf(ctx context.Context, set *compiledSet) ([]*appsv1.ControllerRevision, error) {
	listed, err := h.revisions.Of(ctx, set.name)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: list its revisions: %w", set.name, err)
	}
	return revision.Of(set.declared, listed), nil
}

func (s *compiledSet) withContentOf(found *appsv1.ControllerRevision) (*inject.Set, error) {
	if last := s.recorded.Load(); last != nil && last.name == found.Name && last.resourceVersion == found.ResourceVersion {
		return last.set, nil
	}
	prepared, err := inject.PreparePinned(s.declared, found)
	if err != nil {
		return nil, err
	}
	s.recorded.Store(&recordedSet{name: found.Name, resourceVersion: found.ResourceVersion, set: prepared})
	return prepared, nil
}
