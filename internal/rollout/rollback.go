package rollout

import (
	"fmt"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/record"
)

// rollsBack reports whether a pod is updated, or a rollback may upgrade the pod, and counts the pods to upgrade.
// A rollback upgrades only pods with the quarantined content, and pods with an unfinished resize, because the
// resize may have the quarantined content as its target, or may belong to this rollback. Other pods with an older
// version are not upgraded (SPEC §11.12).
func (p *planner) rollsBack(pod *Pod) bool {
	if pod.Updated {
		return true
	}
	// The annotations of every matched pod can be parsed, so an error is not expected.
	hashes, err := record.Hashes(pod.Annotations)
	if err != nil {
		return false
	}
	hash, resize := hashes[p.set].Hash, record.Resize(pod.Annotations, p.set)
	if unfinished := resize != "" && resize != hash; hash != p.quarantine.Hash && !unfinished {
		return false
	}
	p.plan.Quarantined++
	if pod.Ready {
		p.plan.QuarantinedReady++
	}
	return true
}

// rollback adapts phase and message of a plan to a rollback. A rollback ends in phase Quarantined.
func (p *planner) rollback() {
	plan := &p.plan
	// The conditions describe upgrades to the content of the SidecarSet, not to the last good revision.
	plan.FalseConditions, plan.TrueConditions = nil, nil
	if plan.Ended() || plan.Phase == protocol.PhaseNotUpdate {
		if plan.Message = p.quarantine.Message(); plan.Phase == protocol.PhaseNotUpdate && plan.Counts.Remaining > 0 {
			plan.Message = fmt.Sprintf("%d pods keep the quarantined content, because upgrades are off (updateStrategy.type NotUpdate); %s", plan.Counts.Remaining, p.quarantine.Reason)
		}
		plan.Phase = protocol.PhaseQuarantined
		if plan.Counts.NotUpgradable > 0 {
			plan.Message += fmt.Sprintf("; pods that cannot be rolled back in place: %d, such as %s", plan.Counts.NotUpgradable, plan.NotUpgradable[0])
		}
		return
	}
	plan.Message = fmt.Sprintf("rolling back to revision %s: %d to go, %d unavailable of %d allowed%s; %s",
		p.quarantine.Revision, plan.Counts.Remaining, plan.Counts.Unavailable, plan.MaxUnavailable, plan.lostNodes(), p.quarantine.Reason)
}
