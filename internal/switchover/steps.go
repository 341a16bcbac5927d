package switchover

import (
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// checkSteps reports a rollout whose steps have not ended, and a rollout that was rolled back.
// OpenKruise ignores RolloutPolicies, and would upgrade all remaining pods.
func (c *Check) checkSteps(of *setPods) {
	set, rolledBack := of.set, stage.QuarantineOf(of.set)
	if rolledBack == nil && !inSteps(set) || !rollsOut(set) {
		return
	}
	// checkRules reports the error.
	kept, _ := rollout.Partition(&set.Spec.UpdateStrategy, of.matched)
	switch due := min(of.problems[outOfDate].pods, of.matched-kept-of.updated); {
	case due <= 0:
	case rolledBack != nil:
		c.find(Differs, "steps", objectOf(set), "The rollout failed and was rolled back to revision %s. OpenKruise would upgrade %s to the failed content. "+
			"Before you start OpenKruise, apply the earlier content, or set spec.updateStrategy.paused.", rolledBack.Revision, plural(due, "pod")).
			Remedy = "kubectl sidecarset undo " + set.Name
	default:
		c.find(Differs, "steps", objectOf(set), "The steps of RolloutPolicy %s have not ended. OpenKruise has no steps, and would upgrade the remaining %s. "+
			"Before you start OpenKruise, end all steps, or set spec.updateStrategy.paused or a partition.", set.Status.Rollout.Policy, plural(due, "pod")).
			Remedy = "kubectl sidecarset promote " + set.Name + " --full"
	}
}

// inSteps reports whether steps of a RolloutPolicy limit the rollout of a SidecarSet. If the
// operator has not observed the newest generation, this generation begins with the first step.
func inSteps(set *v1alpha1.SidecarSet) bool {
	current := set.Status.Rollout
	return current != nil && current.Stage != nil && (!current.Stage.Done || current.Generation != set.Generation)
}
