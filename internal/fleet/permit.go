package fleet

import (
	"strings"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

// AwaitingPermit is the message of a rollout without a permit.
const AwaitingPermit = "the rollout waits for a permit of the fleet"

// WithFault adds to the message of Hold why the connection to the fleet fails (SPEC §12.9). The fault is empty
// while the connection works. It precedes the counts of the plan.
func WithFault(message, fault string) string {
	if fault == "" {
		return message
	}
	return AwaitingPermit + "; the connection to the fleet fails: " + fault + strings.TrimPrefix(message, AwaitingPermit)
}

// Permitted reports whether a member of a fleet may roll out the content of a completed SidecarSet
// (SPEC §12.5). granted is the permit of the run, if any. Content whose rollout ended last needs no
// permit, so that a cluster that joins a fleet continues.
func Permitted(set *v1alpha1.SidecarSet, granted *protocol.Permit) bool {
	hash := set.Annotations[v1alpha1.HashAnnotation]
	if granted != nil && granted.Hash == hash || Recorded(set) != nil {
		return true
	}
	good := set.Status.LastGoodRevision()
	return good != nil && good.Hash == hash
}

// Recorded returns the permit that the status of a completed SidecarSet records for its content, or nil.
func Recorded(set *v1alpha1.SidecarSet) *protocol.Permit {
	if set.Status.Rollout == nil {
		return nil
	}
	if permit := protocol.ParsePermit(set.Status.Rollout.Permit); permit != nil && permit.Hash == set.Annotations[v1alpha1.HashAnnotation] {
		return permit
	}
	return nil
}

// Hold removes the upgrades from the plan of a rollout without a permit. Such a rollout does not end,
// because its end would permit its content. A rollback needs no permit.
func Hold(plan *rollout.Plan) bool {
	switch plan.Phase {
	case protocol.PhaseComplete, protocol.PhasePartitionReached:
		plan.Phase, plan.Frozen, plan.Message = protocol.PhaseFrozen, AwaitingPermit, AwaitingPermit+"; "+plan.Message
		return true
	}
	plan.Freeze(AwaitingPermit)
	return plan.Phase == protocol.PhaseFrozen
}
