package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/webhook/fallback"
)

// missedFor is the time between two searches for a missing pinned revision on the API server.
const missedFor = time.Second

// recordedSet is a SidecarSet that is prepared for injection with the content of a revision.
type recordedSet struct {
	name, resourceVersion string
	set                   *inject.Set
}

// resolved contains the versions of SidecarSets that are injected into a pod.
type resolved struct {
	versions []*inject.Set
	// newest has the same indexes as versions. If a version is the last good revision, newest contains the
	// newest content, which may replace this version. All other entries are nil. Quarantined content never
	// replaces the last good revision.
	newest []*inject.Set
}

// resolve returns the version of each SidecarSet for the pod of a request (SPEC §4.11, §11.5).
func (h *Handler) resolve(ctx context.Context, request types.UID, pod *corev1.Pod, sets []*compiledSet) (resolved, error) {
	r := resolved{versions: make([]*inject.Set, 0, len(sets))}
	for _, set := range sets {
		version, isFormer, err := h.version(ctx, request, pod, set)
		if err != nil {
			return resolved{}, inject.SetError{Set: set.name, Err: err}
		}
		if isFormer && set.newestErr == nil && set.newest != version {
			if r.newest == nil {
				r.newest = make([]*inject.Set, len(sets))
			}
			r.newest[len(r.versions)] = set.newest
		}
		r.versions = append(r.versions, version)
	}
	return r, nil
}

// inject injects the versions. A last good revision may conflict with content of another SidecarSet that was
// validated later. In this case, inject retries with the newest content in place of one last good revision at
// a time, and finally in place of all of them (SPEC 11.5.2).
func (r resolved) inject(pod *corev1.Pod, now metav1.Time) (*inject.Injection, error) {
	injection, err := inject.Pod(pod, r.versions, now)
	if err == nil {
		return injection, nil
	}
	all, replaced := slices.Clone(r.versions), 0
	for i, newest := range r.newest {
		if newest == nil {
			continue
		}
		one := slices.Clone(r.versions)
		one[i], all[i] = newest, newest
		if injection, err = inject.Pod(pod, one, now); err == nil {
			return injection, nil
		}
		replaced++
	}
	if replaced > 1 {
		return inject.Pod(pod, all, now)
	}
	return nil, err
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
		version, err = h.former(ctx, set, pod)
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
	if errors.Is(err, revision.ErrNoSuchRevision) {
		found, err = h.livePinned(ctx, set, err)
	}
	if err != nil {
		return nil, err
	}
	return set.withContentOf(found)
}

// livePinned searches the API server for the pinned revision, because the validation of the SidecarSet may have
// accepted a revision that the cache lacks. While the revision is missing, livePinned returns an error, and
// searches at most once per missedFor.
func (h *Handler) livePinned(ctx context.Context, set *compiledSet, missing error) (*appsv1.ControllerRevision, error) {
	now := h.now().Time
	if last := set.missed.Load(); last != nil && now.Sub(*last) < missedFor {
		return nil, missing
	}
	found, err, _ := set.pin.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fallback.Timeout)
		defer cancel()
		listed, err := h.revisions.LiveOf(ctx, set.name)
		if err != nil {
			return nil, fmt.Errorf("SidecarSet %s: list its revisions: %w", set.name, err)
		}
		found, err := revision.FindPinned(set.declared, revision.Of(set.declared, listed))
		if err != nil {
			set.missed.Store(&now)
			return nil, err
		}
		return found, nil
	})
	if err != nil {
		return nil, err
	}
	return found.(*appsv1.ControllerRevision), nil
}

// former returns the last good revision, which set.former names. If this revision is missing, or cannot be
// listed or read, former returns the newest content, because a policy must not stop the creation of pods.
// former also returns the newest content if no pod remains to be upgraded or recreated, and the new pod could
// not be upgraded in place or may end before its upgrade (SPEC 11.5.5). Otherwise, a workload that deletes its
// last old pod before the creation of the next pod would never get the newest content.
func (h *Handler) former(ctx context.Context, set *compiledSet, pod *corev1.Pod) (*inject.Set, error) {
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
	if set.complete && !set.quarantined && set.newestErr == nil && (ofJob(pod) || !sameWithoutImages(recorded, set.newest)) {
		return set.newest, nil
	}
	return recorded, nil
}

func ofJob(pod *corev1.Pod) bool {
	kind, _ := podstate.Owner(pod)
	return kind == "Job"
}

func sameWithoutImages(a, b *inject.Set) bool {
	return a.Annotations[v1alpha1.HashWithoutImageAnnotation] == b.Annotations[v1alpha1.HashWithoutImageAnnotation]
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
