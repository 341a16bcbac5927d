package operator

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// registerRevision makes the set's present content its newest revision, and
// names it in the set's status (SPEC §6). A revision that records the content
// already is numbered anew instead of created again.
func (r *reconciler) registerRevision(ctx context.Context, set *v1alpha1.SidecarSet, pods []*corev1.Pod) error {
	sorted, err := r.revisionsOf(ctx, set)
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
		if current, err = r.createRevision(ctx, set, data, number); err != nil {
			return err
		}
		sorted = append(sorted, current)
	}
	for _, recorded := range sorted {
		mutate := revision.Adopt
		if recorded == current {
			mutate = func(on *appsv1.ControllerRevision, set *v1alpha1.SidecarSet) { revision.MakeLatest(on, set, number) }
		}
		if err := r.updateRevision(ctx, set, recorded, mutate); err != nil {
			return err
		}
	}
	set.Status.LatestRevision = current.Name
	return r.deleteRevisions(ctx, revision.Expendable(set, sorted, current.Name, pods))
}

// revisionSetIndex finds cached revisions by the name of their set.
const revisionSetIndex = "sidecarset"

func setOfRevision(o client.Object) []string {
	if set := o.GetLabels()[v1alpha1.SidecarSetNameLabel]; set != "" {
		return []string{set}
	}
	return nil
}

// revisionsOf lists the cached revisions of a set, the oldest first. They are
// the cache's own.
func (r *reconciler) revisionsOf(ctx context.Context, set *v1alpha1.SidecarSet) ([]*appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := r.client.List(ctx, &list, client.InNamespace(r.namespace),
		client.MatchingFields{revisionSetIndex: set.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list revisions of SidecarSet %s: %w", set.Name, err)
	}
	return slices.DeleteFunc(revision.Of(set, list.Items), func(r *appsv1.ControllerRevision) bool { return r.DeletionTimestamp != nil }), nil
}

// createRevision creates the revision of new content. A name that other content
// took already is a collision: it is counted, and another name tried.
func (r *reconciler) createRevision(ctx context.Context, set *v1alpha1.SidecarSet, data []byte, number int64) (*appsv1.ControllerRevision, error) {
	for {
		built, err := revision.New(set, r.namespace, number)
		if err != nil {
			return nil, err
		}
		err = r.client.Create(ctx, built)
		if err == nil {
			return built, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create ControllerRevision %s/%s: %w", r.namespace, built.Name, err)
		}
		// The cache may lag behind what this process wrote itself.
		var existing appsv1.ControllerRevision
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(built), &existing); err != nil {
			return nil, fmt.Errorf("read ControllerRevision %s/%s: %w", r.namespace, built.Name, err)
		}
		if revision.Belongs(&existing, set) && revision.Equal(existing.Data.Raw, data) {
			return &existing, nil
		}
		if err := r.countCollision(ctx, set); err != nil {
			return nil, err
		}
	}
}

// countCollision writes the count at once: the webhook derives the revision's name from
// it.
func (r *reconciler) countCollision(ctx context.Context, set *v1alpha1.SidecarSet) error {
	before := set.DeepCopy()
	var count int32
	if set.Status.CollisionCount != nil {
		count = *set.Status.CollisionCount
	}
	set.Status.CollisionCount = new(count + 1)
	return r.writeStatus(ctx, before, set)
}

func (r *reconciler) updateRevision(ctx context.Context, set *v1alpha1.SidecarSet, cached *appsv1.ControllerRevision, mutate func(*appsv1.ControllerRevision, *v1alpha1.SidecarSet)) error {
	wanted := cached.DeepCopy()
	mutate(wanted, set)
	if equality.Semantic.DeepEqual(cached, wanted) {
		return nil
	}
	if err := r.client.Update(ctx, wanted); err != nil {
		return fmt.Errorf("update ControllerRevision %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	return nil
}

func (r *reconciler) deleteRevisions(ctx context.Context, expendable []*appsv1.ControllerRevision) error {
	for _, old := range expendable {
		// Not if it became the newest one, or another, in the meantime.
		unchanged := client.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion}
		if err := r.client.Delete(ctx, old, unchanged); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete ControllerRevision %s/%s: %w", old.Namespace, old.Name, err)
		}
		log.FromContext(ctx).V(1).Info("deleted a revision past the history limit", "revision", old.Name)
	}
	return nil
}
