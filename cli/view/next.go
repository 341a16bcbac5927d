package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

const (
	checkCommand = "kubectl sidecarset check"
	// endBake precedes the command that ends a bake time.
	endBake = "end the bake time: "
	// recreatePods precedes the command that recreates pods.
	recreatePods = "recreate the pods: "
)

// PatchStrategy returns the command that changes a field of spec.updateStrategy. value is JSON.
func PatchStrategy(set, field, value string) string {
	return fmt.Sprintf(`kubectl patch sidecarset %s --type=merge -p '{"spec":{"updateStrategy":{"%s":%s}}}'`, set, field, value)
}

// resumeInjection returns the command that resumes the injection of a SidecarSet into new pods.
func resumeInjection(set string) string {
	return "kubectl patch sidecarset " + set + ` --type=merge -p '{"spec":{"injectionStrategy":{"paused":false}}}'`
}

// PausedBySpec returns the reason of a pause by the spec, with the command that resumes the rollout.
func PausedBySpec(set string) string {
	return "spec.updateStrategy.paused is true (" + ResumeCommand(set) + ")"
}

// seeFinalizers returns the command that shows the finalizers of a SidecarSet, which delay the deletion.
func seeFinalizers(set string) string {
	return "see its finalizers: kubectl get sidecarset " + set + " -o jsonpath='{.metadata.finalizers}'"
}

// ResumeCommand returns the command that resumes a rollout that is paused by spec or by signal.
func ResumeCommand(set string) string { return "kubectl sidecarset resume " + set }

// ApproveCommand returns the command that approves the current step of a rollout.
func ApproveCommand(set string) string { return "kubectl sidecarset approve " + set }

// PromoteCommand returns the command that ends the current step of a rollout.
func PromoteCommand(set string) string { return "kubectl sidecarset promote " + set }

// retryCommand returns the command that restarts a rollout after the rollout was rolled back.
func retryCommand(set string) string { return "kubectl sidecarset retry " + set }

// restartCommand returns the command that evicts the pods that get the newest content only when they are
// recreated.
func restartCommand(set string) string { return "kubectl sidecarset restart " + set }

// PausedBySignal returns the user and the reason of a pause by signal, with the command that resumes the run.
func PausedBySignal(set string, pause *protocol.Pause) string {
	return pausedBy(pause) + " (" + ResumeCommand(set) + ")"
}

// describeCommand returns the command that shows the events of a pod.
func describeCommand(pod *Pod) string {
	return fmt.Sprintf("kubectl describe pod %s -n %s", pod.Name, pod.Namespace)
}

// blockedPod returns a pod in which a container that is not a sidecar of the SidecarSet cannot start, or nil.
// longest is the pod whose upgrade has been in progress the longest, or nil.
func (r *Rollout) blockedPod(longest *Pod) *Pod {
	if longest != nil {
		if longest.blocked && longest.Phase != PodFailing {
			return longest
		}
		return nil
	}
	if pod := r.unready(); pod != nil && pod.blocked {
		return pod
	}
	return nil
}

// next returns the commands that continue a rollout or explain the state of the rollout.
func (r *Rollout) next(now time.Time) []string {
	if r.terminating {
		return []string{seeFinalizers(r.Name)}
	}
	if found := r.nextOfRollout(now); len(found) > 0 {
		return found
	}
	return r.nextOfDegraded()
}

func (r *Rollout) nextOfRollout(now time.Time) []string {
	var found []string
	add := func(command string, needed bool) {
		if needed && !slices.Contains(found, command) {
			found = append(found, command)
		}
	}
	f := r.facts()
	add(checkCommand, r.partFails()) // An undo also fails until the webhook responds.
	stopped := len(found)
	add(checkCommand, !r.Observed)
	add(r.undoCommand(), (r.PausedBySpec || r.Pause != nil) && r.Phase != protocol.PhaseQuarantined && r.fails())
	add(ResumeCommand(r.Name), r.PausedBySpec || r.Pause != nil)
	add("kubectl edit sidecarset "+r.Name, f.progressing == v1alpha1.ReasonInvalid)
	policy := r.invalidPolicy()
	add("kubectl edit rolloutpolicy "+policy, policy != "")
	add("kubectl sidecarset open "+r.Name, f.progressing == v1alpha1.ReasonRolloutFailing && policy == "")
	add(checkCommand, isOutage(f.progressing) || f.progressing == v1alpha1.ReasonRunUnreadable || r.RunUnknown != "" && !r.Phase.Ended())
	if len(found) == stopped {
		for _, command := range r.nextOfPhase(now) {
			add(command, true)
		}
	}
	r.nextOfPods(f.uninjected, add)
	add(r.whyCommand(), r.Counts.NotUpgradable > 0 && r.Phase != protocol.PhaseNotUpdate)
	add(resumeInjection(r.Name), r.InjectionPaused)
	return found
}

// nextOfPods adds the commands for lost pods, and for pods without sidecars.
func (r *Rollout) nextOfPods(uninjected int, add func(command string, needed bool)) {
	add(r.deleteLostPods(), len(r.LostPods) > 0)
	add(checkCommand, r.RunUnknown != "" && !r.notResponding)
	add("kubectl sidecarset list --missing", uninjected > 0)
	add(recreatePods+restartCommand(r.Name), uninjected > 0 && r.Phase == protocol.PhaseComplete && !r.InjectionPaused && !r.partFails() && !r.bareMissing)
}

// nextOfDegraded returns the command for a degraded SidecarSet whose rollout needs no action, for example
// after an undo.
func (r *Rollout) nextOfDegraded() []string {
	switch {
	case r.Degraded() == nil:
		return nil
	case r.Phase.Ended():
		return []string{r.whyCommand()}
	}
	return []string{"kubectl sidecarset status " + r.Name + " --watch"}
}

// whyCommand returns the command that shows the cause of a state, such as the fields that prevent an upgrade
// in place.
func (r *Rollout) whyCommand() string { return "kubectl sidecarset why " + r.Name }

func (r *Rollout) undoCommand() string { return "go back: " + r.undo }

// fails reports whether a pod with the newest content has a sidecar that cannot start. Pods with older
// content are ignored, because an undo does not change older content.
func (r *Rollout) fails() bool {
	return slices.ContainsFunc(r.pods(), func(pod *Pod) bool { return pod.Phase == PodFailing && pod.updated })
}

// partFails reports whether a part of the installation does not respond.
func (r *Rollout) partFails() bool {
	return r.Fault != (Fault{}) || slices.ContainsFunc(r.Conditions, func(c Condition) bool {
		return c.Type == v1alpha1.ConditionInjected && c.Status == "False" && c.Reason == v1alpha1.ReasonWebhookUnavailable
	})
}

// invalidPolicy returns the name of the RolloutPolicy whose invalid window stops the rollout, or an empty
// string.
func (r *Rollout) invalidPolicy() string {
	for _, c := range r.Conditions {
		if c.Reason == v1alpha1.ReasonRolloutFailing {
			if policy := stage.InvalidPolicy(c.Message); policy != "" {
				return policy
			}
		}
	}
	return ""
}

// nextOfPhase returns the commands for a rollout that neither a pause nor a fault stops.
func (r *Rollout) nextOfPhase(now time.Time) (found []string) {
	add := func(command string, needed bool) {
		if needed && command != "" && !slices.Contains(found, command) {
			found = append(found, command)
		}
	}
	if r.rollback == v1alpha1.ReasonRollingBack {
		return []string{"kubectl sidecarset status " + r.Name + " --watch"}
	}
	if r.Phase == protocol.PhaseQuarantined {
		return []string{"apply other content, or retry this content: " + retryCommand(r.Name)}
	}
	if r.Counts.Matched == 0 && r.facts().uninjected == 0 {
		return r.noPods.next()
	}
	undo, waiting, longest := r.undoCommand(), r.Phase == protocol.PhaseWaiting, r.longest()
	add(undo, r.fails())
	if r.Counts.NotUpgradable > 0 && r.Phase == protocol.PhaseComplete {
		add(r.whyCommand(), true)
		add(recreatePods+restartCommand(r.Name), true)
	}
	nodeCommand := r.nodeCommand(longest)
	add(nodeCommand, true)
	add(r.whyCommand(), waiting)
	switch pod := r.blockedPod(longest); {
	case nodeCommand != "":
	case pod != nil:
		add(describeCommand(pod), true)
	default:
		add(r.late.logsCommand(), true)
		add(r.stop(), r.late != nil)
		add(undo, waiting && longest != nil && longest.late(now))
	}
	add(endBake+PromoteCommand(r.Name), r.Phase == protocol.PhaseBaking)
	add("skip the gates: "+PromoteCommand(r.Name), r.Phase == protocol.PhaseGateRunning)
	add(ApproveCommand(r.Name), r.Phase == protocol.PhaseAwaitingApproval)
	add(unfreezeCommand(r.frozenBy()), true)
	return found
}

// nodeCommand returns the command for the lost node of the pod for which the rollout waits. If the node is
// not lost, nodeCommand returns an empty string.
func (r *Rollout) nodeCommand(longest *Pod) string {
	if longest == nil {
		longest = r.unready()
	}
	if longest == nil {
		return ""
	}
	return longest.nodeCommand
}
