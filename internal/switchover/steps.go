package switchover

import (
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

// checkSteps reports a rollout whose steps have not ended. OpenKruise ignores RolloutPolicies, and
// would upgrade the pods of all later steps.
func (c *Check) checkSteps(of *setPods) {
	set := of.set
	if !inSteps(set) || !rollsOut(set) {
		return
	}
	// checkRules reports the error.
	kept, _ := rollout.Partition(&set.Spec.UpdateStrategy, of.matched)
	if due := min(of.problems[outOfDate].pods, of.matched-kept-of.updated); due > 0 {
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
