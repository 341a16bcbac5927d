// Package action contains the rules for RolloutActions (SPEC 11.13): the step to which an action applies, the
// update for the run, and the times of retries, rejection and deletion.
package action

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// lifetime is the age at which a pending action is rejected. kept is the time between the end of an action
	// and its deletion.
	lifetime = 10 * time.Minute
	kept     = time.Hour
	// firstRetry and lastRetry are the minimum and the maximum delay before the next attempt. Within these
	// limits, the delay is half the age of the action.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// attempt is the time after which the run rejects the update of an attempt. attempt is longer than the time
	// for which the operator waits for the answer, because the clocks of the operator and of Temporal may
	// differ.
	attempt = time.Minute
)

// Webhook is the name of the webhook that writes the authenticated user into an action.
const Webhook = "rolloutactions.outrigger.io"

// Final reports whether the action has succeeded or was rejected.
func Final(a *outriggerv1.RolloutAction) bool {
	return a.Status.Phase == outriggerv1.ActionSucceeded || a.Status.Phase == outriggerv1.ActionRejected
}

// DeleteAt returns the time at which an action that has ended is deleted.
func DeleteAt(a *outriggerv1.RolloutAction) time.Time {
	if a.Status.Time == nil {
		return a.CreationTimestamp.Add(kept)
	}
	return a.Status.Time.Add(kept)
}

// RetryAfter returns the time from a failed attempt to the next attempt.
func RetryAfter(a *outriggerv1.RolloutAction, now time.Time) time.Duration {
	age := now.Sub(a.CreationTimestamp.Time)
	return min(max(age/2, firstRetry), lastRetry, max(lifetime-age, 0)+time.Second)
}

// UpdateID returns the id of the Temporal update for an action. Temporal deduplicates updates by their ids, so
// a second update with the same id has no effect and returns the result of the first update.
func UpdateID(a *outriggerv1.RolloutAction) string {
	return protocol.ActionUpdatePrefix + string(a.UID)
}

// Expired reports whether the age of an action has reached lifetime. The run rejects the update of an expired
// action.
func Expired(a *outriggerv1.RolloutAction, now time.Time) bool {
	return now.Sub(a.CreationTimestamp.Time) >= lifetime
}

// Refused returns the reason to reject an action, or "" if the action may be sent to a run. set is nil if
// the SidecarSet does not exist.
func Refused(a *outriggerv1.RolloutAction, set *v1alpha1.SidecarSet, now time.Time) string {
	switch {
	case a.Spec.RequestedBy == "":
		return "spec.requestedBy is empty, because webhook " + Webhook + " was not called; apply config/webhook, and create the action again"
	case set == nil:
		return fmt.Sprintf("SidecarSet %s does not exist; kubectl get sidecarsets lists the SidecarSets", a.Spec.SidecarSet)
	case a.Status.Target != nil && a.Status.Target.UID != set.UID:
		return fmt.Sprintf("SidecarSet %s was deleted and created again; create the action again", set.Name)
	case a.Status.Target != nil && a.Status.Target.Generation != set.Generation:
		return fmt.Sprintf("SidecarSet %s has changed from generation %d to %d since the action was sent; create the action again", set.Name, a.Status.Target.Generation, set.Generation)
	case a.Spec.Generation != 0 && a.Spec.Generation != set.Generation:
		return fmt.Sprintf("the action is for generation %d, but SidecarSet %s has generation %d; create the action again with the generation of the SidecarSet", a.Spec.Generation, set.Name, set.Generation)
	case Expired(a, now):
		reason := fmt.Sprintf("expired: not carried out within %.0f minutes", lifetime.Minutes())
		if a.Status.Message != "" {
			reason += ": " + a.Status.Message
		}
		return reason + "; create the action again"
	}
	return ""
}

// Run is the newest run of a SidecarSet. Without a run in Temporal, Run has its zero value. Completed is false
// for a run that was terminated or has failed. Generation is 0 if the generation is unknown.
type Run struct {
	Open       bool
	Completed  bool
	Generation int64
	Stage      *protocol.Stage
}

// Target returns the generation and the step to which an action applies. If the run is not ready for the
// action, wait is the reason. If the action can never be carried out, rejected is the reason. Otherwise, both
// reasons are empty.
func Target(a *outriggerv1.RolloutAction, set *v1alpha1.SidecarSet, run Run) (target *outriggerv1.RolloutActionTarget, wait, rejected string) {
	target = &outriggerv1.RolloutActionTarget{UID: set.UID, Generation: set.Generation}
	switch pauses := a.Spec.Verb == outriggerv1.VerbPause || a.Spec.Verb == outriggerv1.VerbResume; {
	case !run.Open && !pauses && hasEnded(set, run):
		// The next run is for other content, which the user has not seen.
		return nil, "", NoRun(a, set)
	case !run.Open:
		return nil, NoRun(a, set), ""
	case pauses:
		return target, "", ""
	case run.Generation != set.Generation:
		return nil, fmt.Sprintf("the rollout of generation %d has not begun%s", set.Generation, seeStatus(set)), ""
	case a.Spec.Verb == outriggerv1.VerbPermit:
		wait, rejected := needsPermit(set)
		return target, wait, rejected
	case a.Spec.Verb != outriggerv1.VerbApprove && a.Spec.Verb != outriggerv1.VerbPromote:
		return target, "", ""
	}
	step, wait, rejected := stepOf(a, set, run.Stage)
	target.Step = int32(step)
	return target, wait, rejected
}

// hasEnded reports whether the rollout of the current generation has ended. If Temporal loses a run before the
// end of the rollout, the operator starts another run for this generation.
func hasEnded(set *v1alpha1.SidecarSet, run Run) bool {
	if rollout := set.Status.Rollout; rollout == nil || rollout.Generation != set.Generation {
		return false
	}
	switch set.ProgressingReason() {
	case v1alpha1.ReasonRolloutComplete, v1alpha1.ReasonPartitionReached, v1alpha1.ReasonNotUpgradablePods, v1alpha1.ReasonNotUpdate:
		return true
	}
	return run.Completed && (run.Generation == set.Generation || run.Generation == 0)
}

// needsPermit returns two empty strings if the rollout waits for a permit. If the operator has not
// described the rollout yet, wait is the reason. If the rollout does not wait for a permit, rejected is the
// reason.
func needsPermit(set *v1alpha1.SidecarSet) (wait, rejected string) {
	switch set.ProgressingReason() {
	case "":
		return "the operator has not described the rollout yet" + seeStatus(set), ""
	case v1alpha1.ReasonAwaitingPermit:
		return "", ""
	}
	return "", "the rollout does not wait for a permit of a fleet" + seeStatus(set)
}

// stepOf returns the number of the current step, from 1. If the action does not apply to the current step, step
// is 0, and wait or rejected is the reason.
func stepOf(a *outriggerv1.RolloutAction, set *v1alpha1.SidecarSet, s *protocol.Stage) (step int, wait, rejected string) {
	switch {
	case s == nil || s.Generation != set.Generation:
		return 0, "", "the rollout has no steps: no RolloutPolicy selects the SidecarSet (kubectl get rolloutpolicies), or the first step has not begun" + seeStatus(set)
	case s.Quarantine != nil:
		return 0, "", fmt.Sprintf("the rollout of generation %d is rolled back; start it again with verb retry", set.Generation)
	case s.Done:
		return 0, "", "all steps of the rollout have ended" + seeStatus(set)
	case s.Steps == 0:
		return 0, "the first step has not begun" + seeStatus(set), ""
	case s.Step == nil:
		return 0, s.Title() + " has not begun" + seeStatus(set), ""
	case a.Spec.Step != nil && !names(*a.Spec.Step, s):
		return 0, "", fmt.Sprintf("the action is for step %s, and the current step is %s%s", a.Spec.Step.String(), s.Title(), seeStatus(set))
	}
	return s.Index + 1, "", ""
}

// names reports whether step is the name or the number of the current step of s. The name of a step can be
// a number.
func names(step intstr.IntOrString, s *protocol.Stage) bool {
	if step.Type == intstr.String && step.StrVal == s.Step.Name {
		return true
	}
	return step.String() == strconv.Itoa(s.Index+1)
}

// Request returns the name and the payload of the update for an action with a target. hash is the hash of the
// content. The payload contains the time after which the run rejects the update. Without this time, Temporal
// would keep the update until a worker is available, and the update could take effect after the deletion of the
// action.
func Request(a *outriggerv1.RolloutAction, hash string, now time.Time) (update string, payload any) {
	by, target, notAfter := a.Spec.RequestedBy, a.Status.Target, now.Add(attempt).UTC()
	if expires := a.CreationTimestamp.Add(lifetime).UTC(); expires.Before(notAfter) {
		notAfter = expires
	}
	switch update = string(a.Spec.Verb); a.Spec.Verb {
	case outriggerv1.VerbPause, outriggerv1.VerbResume:
		return update, protocol.Pause{By: by, Reason: a.Spec.Reason, NotAfter: notAfter}
	case outriggerv1.VerbPermit:
		return update, protocol.Permit{Hash: hash, By: by, Reason: a.Spec.Reason, NotAfter: notAfter}
	default:
		return update, protocol.StepRequest{
			Approval:   protocol.Approval{By: by, Reason: a.Spec.Reason},
			Generation: target.Generation, Hash: hash, Step: max(int(target.Step)-1, 0), Full: a.Spec.Full, NotAfter: notAfter,
		}
	}
}

// Answer appends commands for the user to message, which is the answer of a run. rejected is set if the run
// rejected the update.
func Answer(a *outriggerv1.RolloutAction, set *v1alpha1.SidecarSet, message string, rejected bool) string {
	if rejected {
		message += seeStatus(set)
	}
	return message + pausedBySpec(a, set)
}

// NoRun returns the message for an action whose SidecarSet has no open run.
func NoRun(a *outriggerv1.RolloutAction, set *v1alpha1.SidecarSet) string {
	message := "the SidecarSet has no open run: all pods that can be upgraded are, the run has not started, or Temporal has lost the run"
	if a.Spec.Verb == outriggerv1.VerbPause {
		return message + "; spec.updateStrategy.paused pauses the next run: " + patchPaused(set, true)
	}
	return message + seeStatus(set) + pausedBySpec(a, set)
}

func pausedBySpec(a *outriggerv1.RolloutAction, set *v1alpha1.SidecarSet) string {
	if a.Spec.Verb != outriggerv1.VerbResume || !set.Spec.UpdateStrategy.Paused {
		return ""
	}
	return fmt.Sprintf("; SidecarSet %s is paused by its spec: %s", set.Name, patchPaused(set, false))
}

func patchPaused(set *v1alpha1.SidecarSet, paused bool) string {
	return fmt.Sprintf(`kubectl patch sidecarset %s --type=merge -p '{"spec":{"updateStrategy":{"paused":%t}}}'`, set.Name, paused)
}

func seeStatus(set *v1alpha1.SidecarSet) string {
	return " (kubectl sidecarset status " + set.Name + ")"
}
