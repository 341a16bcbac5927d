package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube/revisions"
)

// revisionStep records the content of SidecarSets in ControllerRevisions.
type revisionStep struct {
	client client.Client
	// live reads from the API server, not from the cache.
	live      client.Reader
	namespace string
	status    *statusWriter
	recorder  events.EventRecorder
	// compared maps the name of a SidecarSet to the last result of the comparison of its revisions. The
	// content of a revision is immutable, so revisions are compared again only if the list of revisions
	// changes.
	compared sync.Map
}

// reconcile registers the current content, and records an event if the API server rejects the newest revision,
// because the pass ends before status can show the cause (SPEC 6.10).
func (s *revisionStep) reconcile(ctx context.Context, p *pass) error {
	err := s.register(ctx, p)
	if isRejection(err) {
		s.recorder.Eventf(p.set, nil, corev1.EventTypeWarning, eventRevisionFailed, actionRollout, "%s", boundedNote(err.Error()))
	}
	return err
}

// register registers the current content as the newest revision, and writes the name of the revision to status
// (SPEC §6). If a revision already has this content, register assigns the highest revision number to this
// revision. The rollout does not depend on writes of other revisions, so p.revisionsErr contains the errors of
// these writes.
func (s *revisionStep) register(ctx context.Context, p *pass) error {
	set := p.set
	sorted, err := s.revisionsOf(ctx, set)
	if err != nil {
		return err
	}
	data, err := revision.Content(&set.Spec)
	if err != nil {
		return fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	current := revision.Find(sorted, data)
	number := revision.NumberFor(current, sorted)
	if current == nil {
		if current, err = s.createRevision(ctx, set, data, number); err != nil {
			return err
		}
		sorted = append(sorted, current)
	}
	for _, recorded := range sorted {
		// The content is immutable, so only the metadata is copied and compared.
		wanted := *recorded
		wanted.ObjectMeta = *recorded.ObjectMeta.DeepCopy()
		if recorded == current {
			revision.MakeLatest(&wanted, set, number)
		} else {
			revision.Adopt(&wanted, set)
		}
		if err := s.updateRevision(ctx, recorded, &wanted); err != nil {
			if recorded == current || apierrors.IsConflict(err) {
				return err
			}
			p.revisionsErr = errors.Join(p.revisionsErr, err)
		}
	}
	if at := slices.IndexFunc(sorted, func(r *appsv1.ControllerRevision) bool { return r.Name == set.Status.LatestRevision }); at >= 0 {
		p.former = sorted[at]
	}
	if p.quarantine = stage.QuarantineOf(set); p.quarantine != nil {
		p.target = revision.Named(sorted, p.quarantine.Revision)
	}
	set.Status.LatestRevision = current.Name
	if err := s.recordResizableHashes(ctx, p, sorted); err != nil {
		return err
	}
	err = s.deleteRevisions(ctx, set, revision.Expendable(set, sorted, current.Name, p.pods))
	if apierrors.IsConflict(err) {
		return err
	}
	p.revisionsErr = errors.Join(p.revisionsErr, err)
	return nil
}

// isRejection reports whether the API server rejected a request for a reason that may persist until a user
// changes something.
func isRejection(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsInternalError(err)
}

func (s *revisionStep) forget(name string) { s.compared.Delete(name) }

// compared contains the revisions of a SidecarSet and the result of the comparison of the latest revision
// with the other revisions. The cache may lack a revision, so the result applies only to the listed
// revisions.
type compared struct {
	set       types.UID
	latest    string
	revisions []string
	hashes    []string
}

// recordResizableHashes writes status.resizableHashes before the run of the generation starts, because the
// run reads the list during each plan. The other fields of status are written at the end of the pass.
func (s *revisionStep) recordResizableHashes(ctx context.Context, p *pass, sorted []*appsv1.ControllerRevision) error {
	latest, names := p.set.Status.LatestRevision, make([]string, 0, len(sorted))
	for _, one := range sorted {
		names = append(names, one.Name)
	}
	known, ok := s.compared.Load(p.set.Name)
	result, _ := known.(compared)
	if !ok || result.set != p.set.UID || result.latest != latest || !slices.Equal(result.revisions, names) {
		hashes, err := revision.ResizableHashes(p.set, sorted)
		if err != nil {
			return fmt.Errorf("SidecarSet %s: compare its revisions: %w", p.set.Name, err)
		}
		result = compared{p.set.UID, latest, names, hashes}
	}
	if !slices.Equal(result.hashes, p.set.Status.ResizableHashes) {
		early := p.set.DeepCopy()
		p.before.Status.DeepCopyInto(&early.Status)
		early.Status.CollisionCount, early.Status.ResizableHashes = p.set.Status.CollisionCount, result.hashes
		if err := s.status.write(ctx, p.before, early); err != nil {
			return err
		}
		p.before, p.set.ResourceVersion, p.set.Status.ResizableHashes = early, early.ResourceVersion, result.hashes
	}
	s.compared.Store(p.set.Name, result)
	return nil
}

// changedImages returns the images of spec that the revision former does not contain. If there are no such
// images, or if former is nil or cannot be decoded, changedImages returns all images of spec.
func changedImages(spec *v1alpha1.SidecarSetSpec, former *appsv1.ControllerRevision) []string {
	all, before := imagesOf(spec), &v1alpha1.SidecarSetSpec{}
	if former == nil || revision.Restore(former.Data.Raw, before) != nil {
		return all
	}
	known := imagesOf(before)
	changed := slices.DeleteFunc(slices.Clone(all), func(image string) bool { return slices.Contains(known, image) })
	if len(changed) == 0 {
		return all
	}
	return changed
}

// imagesOf returns the images of spec, in the form container=image.
func imagesOf(spec *v1alpha1.SidecarSetSpec) []string {
	var images []string
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		images = append(images, container.Name+"="+container.Image)
	}
	return images
}

// revisionsOf returns the cached revisions of set, the oldest first. Callers must not change these objects.
func (s *revisionStep) revisionsOf(ctx context.Context, set *v1alpha1.SidecarSet) ([]*appsv1.ControllerRevision, error) {
	listed, err := revisions.List(ctx, s.client, s.namespace, set.Name)
	if err != nil {
		return nil, fmt.Errorf("list revisions of SidecarSet %s: %w", set.Name, err)
	}
	return slices.DeleteFunc(revision.Of(set, listed), func(r *appsv1.ControllerRevision) bool { return r.DeletionTimestamp != nil }), nil
}

// createRevision creates the revision for new content. If a revision with the same name and content exists,
// createRevision returns the existing revision. If a revision with the same name has other content,
// createRevision increases the collision count and tries another name.
func (s *revisionStep) createRevision(ctx context.Context, set *v1alpha1.SidecarSet, data []byte, number int64) (*appsv1.ControllerRevision, error) {
	for {
		built, err := revision.New(set, s.namespace, number)
		if err != nil {
			return nil, err
		}
		err = s.client.Create(ctx, built)
		if err == nil {
			return built, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create ControllerRevision %s/%s: %w", s.namespace, built.Name, err)
		}
		// The cache may not contain the last write of this process yet.
		var existing appsv1.ControllerRevision
		if err := s.live.Get(ctx, client.ObjectKeyFromObject(built), &existing); err != nil {
			return nil, fmt.Errorf("read ControllerRevision %s/%s: %w", s.namespace, built.Name, err)
		}
		if revision.Belongs(&existing, set) && revision.Equal(existing.Data.Raw, data) {
			return &existing, nil
		}
		if err := s.countCollision(ctx, set); err != nil {
			return nil, err
		}
	}
}

// countCollision increases the collision count and writes the count immediately, because the webhook derives
// the name of the revision from the count.
func (s *revisionStep) countCollision(ctx context.Context, set *v1alpha1.SidecarSet) error {
	before := set.DeepCopy()
	var count int32
	if set.Status.CollisionCount != nil {
		count = *set.Status.CollisionCount
	}
	set.Status.CollisionCount = new(count + 1)
	return s.status.write(ctx, before, set)
}

func (s *revisionStep) updateRevision(ctx context.Context, cached, wanted *appsv1.ControllerRevision) error {
	if cached.Revision == wanted.Revision && equality.Semantic.DeepEqual(&cached.ObjectMeta, &wanted.ObjectMeta) {
		return nil
	}
	// Update writes the response into its argument. The cache owns the content of wanted, so Update receives a
	// copy.
	if err := s.client.Update(ctx, wanted.DeepCopy()); err != nil {
		return fmt.Errorf("update ControllerRevision %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	return nil
}

// deleteRevisions deletes the expendable revisions. deleteRevisions first reads the SidecarSet from the API
// server, because a user may have pinned a revision since the start of the pass (SPEC 6.6).
func (s *revisionStep) deleteRevisions(ctx context.Context, set *v1alpha1.SidecarSet, expendable []*appsv1.ControllerRevision) error {
	if len(expendable) == 0 {
		return nil
	}
	var live v1alpha1.SidecarSet
	if err := s.live.Get(ctx, client.ObjectKeyFromObject(set), &live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read SidecarSet %s: %w", set.Name, err)
	}
	if live.UID != set.UID || live.Generation != set.Generation {
		return nil // the next pass deletes the revisions
	}
	for _, old := range expendable {
		// The revision may have become the newest revision, or may have been recreated, since the read.
		unchanged := client.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion}
		if err := s.client.Delete(ctx, old, unchanged); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete ControllerRevision %s/%s: %w", old.Namespace, old.Name, err)
		}
		log.FromContext(ctx).V(1).Info("deleted a revision past the history limit", "revision", old.Name)
	}
	return nil
}
