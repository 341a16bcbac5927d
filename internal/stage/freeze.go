package stage

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// FreezeFor is FreezeOf for a run with a stage. A freeze that allows rollbacks does not stop a rollback.
func FreezeFor(set *v1alpha1.SidecarSet, s *protocol.Stage, freezes []outriggerv1.RolloutFreeze, now time.Time) *outriggerv1.RolloutFreeze {
	if RollsBack(s, set.Generation) != nil {
		freezes = slices.DeleteFunc(slices.Clone(freezes), func(freeze outriggerv1.RolloutFreeze) bool {
			return freeze.Spec.AllowRollback == nil || *freeze.Spec.AllowRollback
		})
	}
	return FreezeOf(set, freezes, now)
}

// FreezeOf returns the RolloutFreeze that stops the upgrades of a SidecarSet at the time now, or nil. If
// several freezes apply, FreezeOf returns the freeze that ends last. If several freezes end last, FreezeOf
// returns the first of these freezes by name.
func FreezeOf(set *v1alpha1.SidecarSet, freezes []outriggerv1.RolloutFreeze, now time.Time) *outriggerv1.RolloutFreeze {
	var found *outriggerv1.RolloutFreeze
	for i := range freezes {
		if freeze := &freezes[i]; inForce(freeze, now) && Freezes(freeze, set) && (found == nil || outlasts(freeze, found)) {
			found = freeze
		}
	}
	return found
}

// Frozen returns the message for users if a RolloutFreeze or the windows of the policy stop the upgrades of a
// run with a stage. until is the end of the freeze, or the time of the next opening of a window, or nil. If
// upgrades may start, the message is empty.
func Frozen(set *v1alpha1.SidecarSet, s *protocol.Stage, freezes []outriggerv1.RolloutFreeze, now time.Time) (message string, until *time.Time, err error) {
	freeze := FreezeFor(set, s, freezes, now)
	if freeze == nil {
		return Closed(s, now)
	}
	if freeze.Spec.Until != nil {
		until = new(freeze.Spec.Until.UTC())
	}
	return FreezeMessage(freeze), until, nil
}

// Freezes reports whether the selector of a freeze selects a SidecarSet. An invalid selector selects every
// SidecarSet, because the freeze may be meant for any SidecarSet.
func Freezes(freeze *outriggerv1.RolloutFreeze, set *v1alpha1.SidecarSet) bool {
	selector, err := metav1.LabelSelectorAsSelector(&freeze.Spec.Selector)
	return err != nil || selector.Matches(labels.Set(set.Labels))
}

func inForce(freeze *outriggerv1.RolloutFreeze, now time.Time) bool {
	return freeze.DeletionTimestamp == nil && (freeze.Spec.Until == nil || now.Before(freeze.Spec.Until.Time))
}

func outlasts(a, b *outriggerv1.RolloutFreeze) bool {
	switch x, y := a.Spec.Until, b.Spec.Until; {
	case x == nil && y == nil, x != nil && y != nil && x.Equal(y):
		return a.Name < b.Name
	case x == nil || y == nil:
		return x == nil
	default:
		return x.After(y.Time)
	}
}

// FreezeMessage describes a freeze for users, such as "frozen by RolloutFreeze black-friday until
// 2026-11-28T00:00:00Z: no changes before the weekend".
func FreezeMessage(freeze *outriggerv1.RolloutFreeze) string {
	message := "frozen by RolloutFreeze " + freeze.Name
	if freeze.Spec.Until != nil {
		message += " until " + freeze.Spec.Until.UTC().Format(time.RFC3339)
	}
	if freeze.Spec.Reason != "" {
		message += ": " + freeze.Spec.Reason
	}
	return message
}
