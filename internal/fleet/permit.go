package fleet

import (
	"strings"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

// AwaitingPermit is the message of a rollout without a permit.
const AwaitingPermit = "the rollout waits for a permit of the fleet"

// WithFault inserts fault into message, which is the message of a plan that Hold has changed (SPEC §12.9).
// fault is the reason why the connection to the fleet fails, and is empty while the connection works. The
// fault comes before the counts of the plan.
func WithFault(message, fault string) string {
	if fault == "" {
		return message
	}
	return AwaitingPermit + "; the connection to the fleet fails: " + fault + strings.TrimPrefix(message, AwaitingPermit)
}

// Permitted reports whether a member of a fleet may roll out the content of a SidecarSet (SPEC §12.5). The
// SidecarSet must have the hash of its content, as in the result of revision.Completed. granted is the permit
// of the run, or nil. Content with a permit in status is permitted, too. Content whose rollout ended last needs
// no permit, so that a cluster that joins a fleet continues with its content.
func Permitted(set *v1alpha1.SidecarSet, granted *protocol.Permit) bool {
	hash := set.Annotations[v1alpha1.HashAnnotation]
	if granted != nil && granted.Hash == hash || Recorded(set) != nil {
		return true
	}
	return set.Status.IsLastGood(hash)
}

// Recorded returns the permit in status for the current content of a SidecarSet, or nil. The SidecarSet must
// have the hash of its content, as in the result of revision.Completed.
func Recorded(set *v1alpha1.SidecarSet) *protocol.Permit {
	if set.Status.Rollout == nil {
		return nil
	}
	if permit := protocol.ParsePermit(set.Status.Rollout.Permit); permit != nil && permit.Hash == set.Annotations[v1alpha1.HashAnnotation] {
		return permit
	}
	return nil
}

// Hold removes the upgrades from the plan of a rollout without a permit, and reports whether the plan is
// frozen. A rollout without a permit must not end, because content whose rollout ended last needs no permit. A
// rollback needs no permit, and the rollout of a SidecarSet that upgrades no pods needs no permit (SPEC
// 12.5.1).
func Hold(plan *rollout.Plan) bool {
	switch plan.Phase {
	case protocol.PhaseComplete, protocol.PhasePartitionReached:
		plan.Phase, plan.Frozen, plan.Message = protocol.PhaseFrozen, AwaitingPermit, AwaitingPermit+"; "+plan.Message
		return true
	}
	plan.Freeze(AwaitingPermit)
	return plan.Phase == protocol.PhaseFrozen
}
