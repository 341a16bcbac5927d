package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

// freezeList is the recent list of all RolloutFreezes. All activities of a process share the list,
// so that the number of rollouts does not change the number of requests.
type freezeList struct {
	once   sync.Once
	recent *recent[[]outriggerv1.RolloutFreeze]
}

func (a *Activities) recentFreezes() *recent[[]outriggerv1.RolloutFreeze] {
	a.freezes.once.Do(func() { a.freezes.recent = newRecent(a.Clock, "RolloutFreezes", a.listFreezes) })
	return a.freezes.recent
}

// listFreezes lists the RolloutFreezes. In a cluster without the CustomResourceDefinition of RolloutFreezes,
// the list is empty. The end of the activity that needs the list does not cancel the request, because other
// activities may wait for the same list. The request ends after maxAge, because a later answer would be too
// old.
func (a *Activities) listFreezes(ctx context.Context) ([]outriggerv1.RolloutFreeze, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxAge)
	defer cancel()
	var all outriggerv1.RolloutFreezeList
	err := a.Live.List(ctx, &all)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list RolloutFreezes: %w", err)
	}
	return all.Items, nil
}

// freeze returns the freeze of a SidecarSet, or nil. If the recent list contains a freeze, the list is
// requested again, because the freeze may have been deleted before this activity began. The run would then
// wait for a signal that has arrived already.
func (n *nextBatch) freeze(ctx context.Context, set *v1alpha1.SidecarSet) (*outriggerv1.RolloutFreeze, error) {
	freezes, err := n.recentFreezes().get(ctx)
	if err != nil || stage.FreezeFor(set, n.resolved, freezes, n.Clock.Now()) == nil {
		return nil, err
	}
	if freezes, err = n.recentFreezes().since(ctx, n.began); err != nil {
		return nil, err
	}
	return stage.FreezeFor(set, n.resolved, freezes, n.Clock.Now()), nil
}

// frozen returns the reason why no upgrade may start now, and the time until which the reason applies,
// or nil if the time is not known. The reason is a RolloutFreeze, or that no window of the RolloutPolicy is
// open. If upgrades may start, the reason is empty.
func (n *nextBatch) frozen(ctx context.Context, set *v1alpha1.SidecarSet) (reason string, until *time.Time, err error) {
	freeze, err := n.freeze(ctx, set)
	switch {
	case err != nil:
		return "", nil, err
	case freeze != nil:
		return stage.FreezeMessage(freeze), endOf(freeze), nil
	}
	return stage.Closed(n.resolved, n.Clock.Now())
}

// endOf returns the time at which a freeze ends by itself, or nil if the freeze has no end.
func endOf(freeze *outriggerv1.RolloutFreeze) *time.Time {
	if freeze.Spec.Until == nil {
		return nil
	}
	return new(freeze.Spec.Until.UTC())
}
