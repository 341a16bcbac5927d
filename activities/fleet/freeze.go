package fleet

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
)

// Freeze creates, updates or deletes the RolloutFreeze of the fleet, as wanted requires. The RolloutFreeze stops
// all upgrades in the cluster within two seconds. Rollbacks continue. Freeze ignores a request that is older than
// the freeze in the cluster, because the Temporal Service of the fleet may have been restored from a backup (SPEC
// 12.7.4).
func (m *Member) Freeze(ctx context.Context, wanted protocol.FleetFreeze) error {
	if err := m.confirm(ctx, heartbeat{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	freeze := &outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: fleet.FreezeName}}
	err := m.Live.Get(ctx, client.ObjectKeyFromObject(freeze), freeze)
	missing := apierrors.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return fmt.Errorf("read RolloutFreeze %s: %w", fleet.FreezeName, err)
	case wanted.Since.Before(since(freeze)):
		return nil
	case !wanted.Frozen && missing:
		return nil
	case !wanted.Frozen:
		return m.unfreeze(ctx, freeze)
	}
	metav1.SetMetaDataAnnotation(&freeze.ObjectMeta, v1alpha1.FreezeSinceAnnotation, wanted.Since.UTC().Format(time.RFC3339Nano))
	freeze.Spec = outriggerv1.RolloutFreezeSpec{Reason: reasonOf(wanted)}
	if wanted.Until != nil {
		freeze.Spec.Until = &metav1.Time{Time: *wanted.Until}
	}
	if missing {
		err = m.Writer.Create(ctx, freeze)
	} else {
		err = m.Writer.Update(ctx, freeze)
	}
	if err != nil {
		return fmt.Errorf("write RolloutFreeze %s, which freezes the cluster: %w", fleet.FreezeName, err)
	}
	return nil
}

// unfreeze deletes a RolloutFreeze. The preconditions prevent the deletion of a newer RolloutFreeze.
func (m *Member) unfreeze(ctx context.Context, freeze *outriggerv1.RolloutFreeze) error {
	unchanged := client.Preconditions{UID: &freeze.UID, ResourceVersion: &freeze.ResourceVersion}
	if err := m.Writer.Delete(ctx, freeze, unchanged); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete RolloutFreeze %s: %w", fleet.FreezeName, err)
	}
	return nil
}

// since returns the time at which the freeze of a RolloutFreeze began, or zero if the RolloutFreeze does not exist or
// was written by an earlier release.
func since(freeze *outriggerv1.RolloutFreeze) time.Time {
	began, err := time.Parse(time.RFC3339Nano, freeze.Annotations[v1alpha1.FreezeSinceAnnotation])
	if err != nil {
		return time.Time{}
	}
	return began
}

// reasonOf returns the reason in the RolloutFreeze of the fleet.
func reasonOf(freeze protocol.FleetFreeze) string {
	return protocol.Shortened("the fleet"+protocol.Pause{By: freeze.By, Reason: freeze.Reason}.Details(), protocol.MaxPauseText)
}
