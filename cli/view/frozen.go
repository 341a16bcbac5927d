package view

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
)

// isFrozen reports whether a reason of Progressing means that a RolloutFreeze, the windows of a
// RolloutPolicy, or a missing permit of the fleet stops the rollout.
func isFrozen(reason string) bool {
	return reason == v1alpha1.ReasonFrozen || reason == v1alpha1.ReasonOutsideWindow || reason == v1alpha1.ReasonAwaitingPermit
}

// frozen sets the phase of a rollout that the operator reports as frozen. A rollout without a permit of the
// fleet does not end, even if no pod needs an upgrade.
func (r *Rollout) frozen() {
	upgrades := r.Counts.Remaining > 0 && (r.Phase == protocol.PhaseProgressing || r.Phase == protocol.PhaseWaiting)
	ends := r.Phase == protocol.PhaseComplete || r.Phase == protocol.PhasePartitionReached
	for _, c := range r.Conditions {
		if c.Type == v1alpha1.ConditionProgressing && r.Observed && (upgrades && isFrozen(c.Reason) || ends && c.Reason == v1alpha1.ReasonAwaitingPermit) {
			r.Phase, r.Message = protocol.PhaseFrozen, c.Message
		}
	}
}

// frozenBy returns the description of the freeze in the message of a frozen rollout, without the counts of the
// plan. If the rollout is not frozen, frozenBy returns an empty string.
func (r *Rollout) frozenBy() string {
	if r.Phase != protocol.PhaseFrozen {
		return ""
	}
	return freezeIn(r.Message)
}

// freezeIn returns the description of the freeze in the message of a frozen rollout, in one line.
func freezeIn(by string) string {
	if counts := strings.LastIndex(by, " pods updated, "); counts >= 0 {
		by = by[:max(strings.LastIndex(by[:counts], "; "), 0)]
	}
	return OneLine(strings.TrimPrefix(by, "frozen "))
}

// unfreezeCommand returns the command that ends a freeze. A freeze of a fleet is ended in the fleet, because a
// member recreates a deleted RolloutFreeze of its fleet. If a window of a RolloutPolicy or a missing permit
// stops the rollout, unfreezeCommand returns an empty string.
func unfreezeCommand(by string) string {
	rest, freeze := strings.CutPrefix(by, "by RolloutFreeze ")
	name, _, _ := strings.Cut(rest, " ")
	if name = strings.TrimSuffix(name, ":"); !freeze || name == "" {
		return ""
	}
	if name == fleet.FreezeName {
		return "outrigger fleet unfreeze"
	}
	return "kubectl sidecarset unfreeze " + name
}

func withUnfreeze(by string) string {
	if command := unfreezeCommand(by); command != "" {
		by += " (" + command + ")"
	}
	if strings.HasPrefix(by, fleet.AwaitingPermit) {
		return "frozen: " + by
	}
	return "frozen " + by
}

// Frozen returns the description of the freeze in the status, with the command that ends the freeze. If the
// status shows no freeze, Frozen returns an empty string.
func Frozen(set *v1alpha1.SidecarSet) string {
	c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
	if c == nil || !isFrozen(c.Reason) {
		return ""
	}
	return withUnfreeze(freezeIn(c.Message))
}
