package switchover

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// checkSteps reports a rollout whose steps have not ended, a rollout that was rolled back or paused by signal,
// and a rollout that is frozen or waits for a permit of its fleet. In each of these cases, OpenKruise would
// upgrade all remaining pods.
func (c *Check) checkSteps(of *setPods) {
	set, rolledBack := of.set, stage.QuarantineOf(of.set)
	frozen := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
	if frozen != nil && !slices.Contains([]string{v1alpha1.ReasonFrozen, v1alpha1.ReasonOutsideWindow, v1alpha1.ReasonAwaitingPermit}, frozen.Reason) {
		frozen = nil
	}
	var paused *v1alpha1.RolloutPause
	if set.Status.Rollout != nil {
		paused = set.Status.Rollout.Pause
	}
	if rolledBack == nil && paused == nil && frozen == nil && !inSteps(set) || !rollsOut(set) {
		return
	}
	// checkRules reports the error.
	kept, _ := rollout.Partition(&set.Spec.UpdateStrategy, of.matched)
	switch due := min(of.problems[outOfDate].pods, of.matched-kept-of.updated); {
	case due <= 0:
	case rolledBack != nil:
		c.find(Differs, "steps", objectOf(set), "The rollout failed and was rolled back to revision %s. OpenKruise would upgrade %s to the failed content. "+
			"Before you start OpenKruise, apply the earlier content, or set spec.updateStrategy.paused.", rolledBack.Revision, rollout.Count(due, "pod")).
			Remedy = "kubectl sidecarset undo " + set.Name
	case paused != nil:
		c.find(Differs, "steps", objectOf(set), "The rollout is %s. OpenKruise does not know this pause, and would upgrade the remaining %s. "+
			"Before you start OpenKruise, set spec.updateStrategy.paused or a partition.",
			protocol.Pause{By: paused.By, Reason: paused.Reason}.Sentence(), rollout.Count(due, "pod")).
			Remedy = pauseCommand(set)
	case frozen != nil:
		c.find(Differs, "steps", objectOf(set), "The rollout is held: %s. OpenKruise has no freezes, windows and fleets, and would upgrade the remaining %s. "+
			"Before you start OpenKruise, set spec.updateStrategy.paused or a partition.", frozen.Message, rollout.Count(due, "pod")).
			Remedy = pauseCommand(set)
	default:
		c.find(Differs, "steps", objectOf(set), "The steps of RolloutPolicy %s have not ended. OpenKruise has no steps, and would upgrade the remaining %s. "+
			"Before you start OpenKruise, end all steps, or set spec.updateStrategy.paused or a partition.", set.Status.Rollout.Policy, rollout.Count(due, "pod")).
			Remedy = "kubectl sidecarset promote " + set.Name + " --full"
	}
}

func pauseCommand(set *v1alpha1.SidecarSet) string {
	return "kubectl patch sidecarset " + set.Name + ` --type=merge -p '{"spec":{"updateStrategy":{"paused":true}}}'`
}

// inSteps reports whether steps of a RolloutPolicy limit the rollout of a SidecarSet. If the
// operator has not observed the newest generation, this generation begins with the first step.
func inSteps(set *v1alpha1.SidecarSet) bool {
	current := set.Status.Rollout
	return current != nil && current.Stage != nil && (!current.Stage.Done || current.Generation != set.Generation)
}
