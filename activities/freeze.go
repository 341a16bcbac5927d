package activities

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

// listFreezes lists the RolloutFreezes. In a cluster without the CustomResourceDefinition of RolloutFreezes,
// the list is empty.
func (a *Activities) listFreezes(ctx context.Context) ([]outriggerv1.RolloutFreeze, error) {
	var all outriggerv1.RolloutFreezeList
	err := a.list(ctx, &all)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list RolloutFreezes: %w", err)
	}
	return all.Items, nil
}

// frozen returns the reason why no upgrade may start now, and the time until which the reason applies, or nil if
// the time is not known. The reason is a RolloutFreeze or a closed window of the RolloutPolicy. If upgrades may
// start, the reason is empty. If the cached list contains a freeze, frozen requires a list from after the start
// of the activity, because the freeze may have been deleted before. Otherwise, the run would wait for a signal
// that has already arrived.
func (n *nextBatch) frozen(ctx context.Context, set *v1alpha1.SidecarSet) (reason string, until *time.Time, err error) {
	listed := n.lists().freezes
	freezes, err := listed.get(ctx)
	if err == nil && stage.FreezeFor(set, n.resolved, freezes, n.Clock.Now()) != nil {
		freezes, err = listed.since(ctx, n.began)
	}
	if err != nil {
		return "", nil, err
	}
	return stage.Frozen(set, n.resolved, freezes, n.Clock.Now())
}
