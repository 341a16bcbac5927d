package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/stage"
)

var errForeignRevision = errors.New("belongs to another SidecarSet")

// target returns the SidecarSet with the content that the pods get, or nil if set is nil. During a rollback,
// the content comes from an earlier revision (SPEC §11.12). Otherwise, target returns set. A change of the
// content ends a rollback. target compares the hash, because after a restore of etcd, another generation with
// the same number may have other content.
func (a *Activities) target(ctx context.Context, set *v1alpha1.SidecarSet, current *protocol.Stage) (*v1alpha1.SidecarSet, error) {
	if set == nil {
		return nil, nil
	}
	q := stage.RollsBack(current, set.Generation)
	if q == nil || q.Hash != set.Annotations[v1alpha1.HashAnnotation] {
		return set, nil
	}
	recorded, err := a.revision(ctx, set, q.Revision)
	if err != nil {
		return nil, fmt.Errorf("roll back: %w", err)
	}
	return stage.Target(set, recorded)
}

// recentSet returns the result of target for a SidecarSet at most maxAge old. Without a stage, the result is
// the SidecarSet.
func (a *Activities) recentSet(reference protocol.SetReference, current *protocol.Stage) *recentSet {
	return newRecent(a.Clock, "SidecarSet "+reference.Name, func(ctx context.Context) (*v1alpha1.SidecarSet, error) {
		return a.liveTarget(ctx, reference, current)
	})
}

func (a *Activities) liveTarget(ctx context.Context, reference protocol.SetReference, current *protocol.Stage) (*v1alpha1.SidecarSet, error) {
	set, err := a.liveSet(ctx, reference)
	if err != nil {
		return nil, err
	}
	return a.target(ctx, set, current)
}

func (a *Activities) revision(ctx context.Context, set *v1alpha1.SidecarSet, name string) (*appsv1.ControllerRevision, error) {
	recorded := &appsv1.ControllerRevision{}
	if err := a.Live.Get(ctx, types.NamespacedName{Namespace: a.SystemNamespace, Name: name}, recorded); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: read revision %s: %w", set.Name, name, err)
	}
	if !revision.Belongs(recorded, set) {
		return nil, fmt.Errorf("SidecarSet %s: revision %s %w", set.Name, name, errForeignRevision)
	}
	return recorded, nil
}

// forbiddenTime is the time after which a read of a revision counts as forbidden. A starting API server rejects
// reads until its cache of roles is filled.
const forbiddenTime = 30 * time.Second

// checkRollback replaces the rollback of a failure with a pause if the revision is missing, invalid, or still
// forbidden after forbiddenTime. If the API server cannot be read for another reason, checkRollback returns the
// error.
func (a *Activities) checkRollback(ctx context.Context, set *v1alpha1.SidecarSet, failure *protocol.Failure) error {
	if failure == nil || failure.Quarantine == nil {
		return nil
	}
	began := a.Clock.Now()
	recorded, err := a.revision(ctx, set, failure.Quarantine.Revision)
	for apierrors.IsForbidden(err) && a.Clock.Since(began) < forbiddenTime {
		if err := a.sleep(ctx, time.Second); err != nil {
			return err
		}
		recorded, err = a.revision(ctx, set, failure.Quarantine.Revision)
	}
	if err == nil {
		_, err = stage.Target(set, recorded)
	} else if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !errors.Is(err, errForeignRevision) {
		return err
	}
	if err != nil {
		failure.Quarantine = nil
		failure.Reason += "; it cannot be rolled back: " + err.Error()
	}
	return nil
}
