package fleet

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/fleet"
)

// Freeze creates, updates or deletes the RolloutFreeze of the fleet, as wanted. The RolloutFreeze stops all
// upgrades in the cluster within two seconds. Rollbacks continue.
func (m *Member) Freeze(ctx context.Context, wanted protocol.FleetFreeze) error {
	if err := m.confirm(ctx, heartbeat{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	freeze := &outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: fleet.FreezeName}}
	if !wanted.Frozen {
		if err := m.Writer.Delete(ctx, freeze); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete RolloutFreeze %s: %w", fleet.FreezeName, err)
		}
		return nil
	}
	err := m.Live.Get(ctx, client.ObjectKeyFromObject(freeze), freeze)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("read RolloutFreeze %s: %w", fleet.FreezeName, err)
	}
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

// reasonOf returns the reason in the RolloutFreeze of the fleet.
func reasonOf(freeze protocol.FleetFreeze) string {
	return protocol.Shortened("the fleet"+protocol.Pause{By: freeze.By, Reason: freeze.Reason}.Details(), protocol.MaxPauseText)
}
