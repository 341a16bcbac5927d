package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// maxNamedUnready limits the pods that the reason of a missed deadline names.
const maxNamedUnready = 3

// ProgressDue reports whether the progress deadline of a stage applies to a plan: pods can be upgraded now,
// or the rollout waits for upgraded pods. The deadline does not apply while pods of other versions occupy all
// slots, while another limit of the policy has no slot, while the remaining pods are rejected or cannot be
// upgraded yet, or while the spec pauses the rollout (SPEC §11.6).
func ProgressDue(set *v1alpha1.SidecarSet, plan *Plan, current *protocol.Stage) bool {
	if current.ProgressDeadline() == 0 || set.Spec.UpdateStrategy.Paused || plan.Phase != protocol.PhaseProgressing && plan.Phase != protocol.PhaseWaiting {
		return false
	}
	counts := &plan.Counts
	if len(plan.Pods) > 0 || counts.Converging > 0 {
		return true
	}
	// The partition keeps the last candidates in the order. The kept candidates do not include pods that wait
	// for an earlier upgrade, because such pods come first in the order.
	upgradable := counts.Remaining - len(plan.candidates)
	for i := range plan.candidates {
		if c := &plan.candidates[i]; !c.Waits() && !c.InBackoff {
			upgradable++
		}
	}
	return upgradable > 0 && plan.OpenSlots > 0 && plan.blocked == ""
}

// Overdue returns the failure of a rollout whose progress deadline has passed. The result is nil if the
// deadline does not apply, or if a pod has become updated and ready since the run observed the stall.
func Overdue(set *v1alpha1.SidecarSet, pods []Pod, plan *Plan, current *protocol.Stage, stall *protocol.Stall) *protocol.Failure {
	if stall == nil || !ProgressDue(set, plan, current) || stall.Progressed(plan.Counts) {
		return nil
	}
	failure := &protocol.Failure{Overdue: true, Reason: fmt.Sprintf("no pod became updated and ready within %s (progressDeadline); %s", FormatDuration(current.Step.ProgressDeadline), unreadyPods(pods, plan))}
	if current.Step.Rollback {
		rollBack(failure, set)
	}
	return failure
}

// unreadyPods returns the names of the first pods that the rollout waits for.
func unreadyPods(pods []Pod, plan *Plan) string {
	var names []string
	for i := range pods {
		if pod := &pods[i]; pod.Updated && pod.UpgradedToVersion && (pod.UnavailableByUpgrade() || pod.Resizing) {
			names = append(names, pod.Reference().String())
		}
	}
	if len(names) == 0 {
		return fmt.Sprintf("no upgraded pod is unavailable, and %d pods are to go", plan.Counts.Remaining)
	}
	slices.Sort(names)
	return fmt.Sprintf("upgraded pods that are not ready: %d, such as %s", len(names), strings.Join(names[:min(len(names), maxNamedUnready)], ", "))
}
