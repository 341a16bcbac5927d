package operator

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/operator/runs"
)

// maxConditionMessage limits the message of a condition, in bytes. The API server rejects a status with a
// message of more than 32,768 characters, and messages quote images and annotations of pods.
const maxConditionMessage = 16 << 10

// maxQuoted limits the text that a message quotes from a pod, in bytes.
const maxQuoted = 1 << 10

// condition is a metav1.Condition without its type, generation and time.
type condition struct {
	status          metav1.ConditionStatus
	reason, message string
}

func yes(reason, message string) condition { return condition{metav1.ConditionTrue, reason, message} }

func no(reason, message string) condition { return condition{metav1.ConditionFalse, reason, message} }

// setConditions sets each condition with exactly one reason (SPEC §8).
func setConditions(p *pass) {
	set := func(kind string, c condition) {
		meta.SetStatusCondition(&p.set.Status.Conditions, metav1.Condition{
			Type: kind, Status: c.status, Reason: c.reason, Message: protocol.Shortened(c.message, maxConditionMessage),
			ObservedGeneration: p.set.Generation, LastTransitionTime: metav1.NewTime(p.now.Truncate(time.Second)),
		})
	}
	progressing, degraded := progressing(p), degraded(p)
	stalled := stalled(p, degraded)
	set(v1alpha1.ConditionProgressing, progressing)
	set(v1alpha1.ConditionAvailable, available(p))
	set(v1alpha1.ConditionDegraded, degraded)
	set(v1alpha1.ConditionInjected, injected(p))
	set(v1alpha1.ConditionReady, ready(progressing, stalled))
	set(v1alpha1.ConditionStalled, stalled)
}

// progressing returns the condition Progressing, which is true while pods are being upgraded to the newest
// content.
func progressing(p *pass) condition {
	andPlan := func(reason, message string) condition { return no(reason, message+"; "+p.plan.Message) }
	switch {
	case p.invalid != nil:
		return no(v1alpha1.ReasonInvalid, p.invalid.Error())
	case p.plan.Phase == protocol.PhaseNotUpdate:
		return andPlan(v1alpha1.ReasonNotUpdate, "upgrades are off (updateStrategy.type NotUpdate)")
	case p.plan.Phase == protocol.PhasePaused:
		return andPlan(v1alpha1.ReasonPaused, "paused (updateStrategy.paused)")
	case lacksTemporal(p):
		return andPlan(temporalReason(p), p.temporal.Error())
	case inconclusiveGate(p):
		return andPlan(v1alpha1.ReasonGateInconclusive, signalOf(p.pause).Sentence())
	case pausedBySignal(p):
		return andPlan(v1alpha1.ReasonPaused, signalOf(p.pause).Sentence())
	case p.awaitsPermit():
		return no(p.frozenReason, fleet.WithFault(p.plan.Message, p.out.fleetFault))
	case p.frozen():
		return no(p.frozenReason, p.plan.Message)
	case p.inProgress() && p.fault != runs.Fault{}:
		return andPlan(p.fault.Reason, p.fault.Message)
	case p.inProgress():
		return progressOf(p)
	case p.plan.Phase == protocol.PhasePartitionReached:
		return no(v1alpha1.ReasonPartitionReached, p.plan.Message)
	case p.plan.Counts.NotUpgradable > 0:
		return no(v1alpha1.ReasonNotUpgradablePods, p.plan.Message)
	}
	return no(v1alpha1.ReasonRolloutComplete, p.plan.Message)
}

// progressOf returns the condition Progressing if pods have to be upgraded or have to converge, or if the
// rollout is rolled back.
func progressOf(p *pass) condition {
	switch {
	case p.plan.Phase == protocol.PhaseQuarantined:
		return no(v1alpha1.ReasonQuarantined, p.plan.Message)
	case p.rollsBack():
		return yes(v1alpha1.ReasonRollingBack, p.plan.Message)
	case p.plan.Phase == protocol.PhaseStepReached:
		return stepReached(p)
	case p.out.waits != "":
		return yes(v1alpha1.ReasonWaitingForPods, p.out.waits)
	case p.plan.Phase == protocol.PhaseWaiting:
		return yes(v1alpha1.ReasonWaitingForPods, p.plan.Message)
	}
	return yes(v1alpha1.ReasonRolloutProgress, p.plan.Message)
}

// pausedBySignal reports whether a pause by signal prevents upgrades. A pause by a policy also counts while
// the rollout only waits for upgraded pods, because a policy pauses the rollout when upgraded pods fail (SPEC
// §11.6).
func pausedBySignal(p *pass) bool {
	if p.pause == nil || !p.unfinished() {
		return false
	}
	return p.plan.Counts.Remaining > 0 || p.awaitsPermit() || p.plan.Phase == protocol.PhaseWaiting && signalOf(p.pause).ByPolicy()
}

// inconclusiveGate reports whether the rollout is paused because a gate was inconclusive (SPEC §11.14).
func inconclusiveGate(p *pass) bool {
	return pausedBySignal(p) && signalOf(p.pause).ByPolicy() && stage.OfStatus(p.set).EndedGate(protocol.GateInconclusive) != nil
}

// stepReached returns the condition Progressing of a rollout that waits between two steps (SPEC §11.3).
func stepReached(p *pass) condition {
	phase, message := stage.OfStatus(p.set).Wait(p.now)
	switch message += "; " + p.plan.Message; phase {
	case protocol.PhaseBaking:
		return yes(v1alpha1.ReasonBaking, message)
	case protocol.PhaseGateRunning:
		return yes(v1alpha1.ReasonGateRunning, message)
	case protocol.PhaseAwaitingApproval:
		return yes(v1alpha1.ReasonAwaitingApproval, message)
	}
	return yes(v1alpha1.ReasonRolloutProgress, message)
}

// available returns the condition Available. The condition is false if more pods than maxUnavailable are
// unready, or if all pods are unready.
func available(p *pass) condition {
	counts := p.plan.Counts
	unready, ready := counts.Matched-counts.Ready, fmt.Sprintf("%d of %d pods ready", counts.Ready, counts.Matched)
	if counts.Migrating > 0 {
		ready += fmt.Sprintf(", %d in a hot upgrade", counts.Migrating)
	}
	switch {
	case p.invalid != nil:
		return podsUnknown()
	case unready > p.plan.MaxUnavailable, unready > 0 && counts.Ready == 0:
		return no(v1alpha1.ReasonWaitingForPods, ready)
	}
	return yes(v1alpha1.ReasonAsExpected, ready)
}

// degraded returns the condition Degraded, with the most severe problem as the reason.
func degraded(p *pass) condition {
	counts := p.plan.Counts
	switch {
	case p.invalid != nil:
		return yes(v1alpha1.ReasonInvalid, p.invalid.Error()+rejectsPods(p)+"; correct it: kubectl edit sidecarset "+p.set.Name)
	case lacksTemporal(p):
		return yes(temporalReason(p), p.temporal.Error()+"; check it: kubectl sidecarset check")
	case p.fault != runs.Fault{}:
		return yes(p.fault.Reason, p.fault.Message+faultNext(p.set.Name, p.fault.Reason, p.fault.Message))
	case p.rollsBack():
		return quarantined(p)
	case p.broken.Count > 0 && (p.broken.Newest > 0 || !p.leavesPods()):
		return yes(p.broken.Reason, fmt.Sprintf("%d of %d pods have a sidecar that cannot start, such as %s (%s)%s",
			p.broken.Count, counts.Matched, p.broken.Example, p.broken.Detail, brokenNext(p)))
	case p.unreadable.Count > 0:
		return yes(v1alpha1.ReasonUnreadablePods, fmt.Sprintf("%d pods are neither counted nor upgraded until their annotations are corrected or they are recreated, such as %s (%s); list them: kubectl sidecarset list --outdated",
			p.unreadable.Count, p.unreadable.Example, protocol.Shortened(fmt.Sprint(p.unreadable.Cause), maxQuoted)))
	case p.plan.Phase != protocol.PhaseNotUpdate && counts.NotUpgradable > 0:
		return notUpgradable(p)
	case p.outdatedHashes:
		return yes(v1alpha1.ReasonOutdatedHashes, "no webhook was called when the SidecarSet was stored: the content was not validated, and the hash annotations do not match the content; "+
			"the rollout uses the content; to write the hashes after the webhook is available: kubectl patch sidecarset "+p.set.Name+" --type=merge -p '{}'")
	}
	return no(v1alpha1.ReasonAsExpected, "")
}

func quarantined(p *pass) condition {
	return yes(v1alpha1.ReasonQuarantined, rolledBack(p.quarantine, p.plan.Phase == protocol.PhaseQuarantined)+
		"; apply other content, or retry this content: kubectl sidecarset retry "+p.set.Name)
}

func notUpgradable(p *pass) condition {
	counts := p.plan.Counts
	return yes(v1alpha1.ReasonNotUpgradablePods, fmt.Sprintf("%d of %d pods cannot be upgraded in place and keep their version until they are recreated, such as %s; %s",
		counts.NotUpgradable, counts.Matched, p.plan.NotUpgradable[0], recreateCommand(p)))
}

// leavesPods reports whether the rollout has ended, and the number of pods that cannot be upgraded in place
// exceeds the partition (SPEC 7.4.2).
func (p *pass) leavesPods() bool {
	return p.plan.Phase == protocol.PhaseComplete && p.plan.Counts.NotUpgradable > 0 && !p.unfinished()
}

// brokenNext returns the next command for a message about sidecars that cannot start. brokenNext suggests an
// undo only if a broken pod has the newest content.
func brokenNext(p *pass) string {
	if p.broken.Newest == 0 {
		return "; none of them has the newest content yet: kubectl sidecarset why " + p.set.Name
	}
	return "; go back: kubectl sidecarset undo " + p.set.Name
}

// rolledBack returns a message about a rollback. ended is set after the end of the rollback. The reason of the
// quarantine explains whether the rollout failed or was aborted.
func rolledBack(quarantine *v1alpha1.RolloutQuarantine, ended bool) string {
	verb := "are being"
	if ended {
		verb = "were"
	}
	return fmt.Sprintf("the pods %s rolled back to revision %s: %s", verb, quarantine.Revision, quarantine.Reason)
}

// faultNext returns the next command, which degraded appends to the message of a fault. After a restart of the
// operator, faultOf reads the fault from status, and removes this command from the message.
func faultNext(set, reason, message string) string {
	if policy := stage.InvalidPolicy(message); policy != "" {
		return "; correct RolloutPolicy " + policy + ": kubectl edit rolloutpolicy " + policy
	}
	if reason == v1alpha1.ReasonRolloutFailing {
		return "; see the attempts: kubectl sidecarset open " + set
	}
	return "; check it: kubectl sidecarset check"
}

// recreateCommand returns the next command for pods that cannot be upgraded in place. If the fleet has not
// permitted the newest content, recreated pods would get the last good revision. In this case, the command
// permits the newest content. Otherwise, the command recreates the pods, or explains the first pod if no
// controller would recreate that pod.
func recreateCommand(p *pass) string {
	if p.awaitsPermit() && stage.Former(p.set) != nil {
		return "recreated pods get the former version until the fleet permits the content: kubectl sidecarset permit " + p.set.Name + " --reason TEXT"
	}
	for _, pod := range p.pods {
		if pod.UID != p.plan.NotUpgradable[0].UID {
			continue
		}
		if podstate.Controlled(pod) {
			return "recreate them: kubectl sidecarset restart " + p.set.Name
		}
	}
	return "see the field and the command: kubectl sidecarset why " + p.set.Name
}

// injected returns the condition Injected, which is true if all matching pods have been injected, and the
// webhook injects new pods.
func injected(p *pass) condition {
	switch {
	case p.invalid != nil:
		return podsUnknown()
	case p.webhookFault != "":
		return no(v1alpha1.ReasonWebhookUnavailable, p.webhookFault)
	case p.uninjected.count > 0:
		if p.uninjected.count == 1 {
			return no(v1alpha1.ReasonPodsWithoutSidecar, fmt.Sprintf("1 pod matches but was not injected, %s; it gets the sidecars once it is recreated", p.uninjected.example))
		}
		return no(v1alpha1.ReasonPodsWithoutSidecar, fmt.Sprintf("%d pods match but were not injected, such as %s; they get the sidecars once they are recreated",
			p.uninjected.count, p.uninjected.example))
	}
	return yes(v1alpha1.ReasonAsExpected, "")
}

func podsUnknown() condition {
	return condition{metav1.ConditionUnknown, v1alpha1.ReasonInvalid, "the pods of this SidecarSet cannot be determined"}
}

// lacksTemporal reports whether Temporal is unavailable although the rollout of the generation has not
// started, or pods wait for an upgrade.
func lacksTemporal(p *pass) bool {
	return p.temporal != nil && p.invalid == nil && (!rolloutStarted(p.set) || p.inProgress() && p.plan.Counts.Remaining > 0)
}

func temporalReason(p *pass) string {
	if _, throttled := errors.AsType[runs.ThrottledError](p.temporal); throttled {
		return v1alpha1.ReasonTemporalThrottled
	}
	return v1alpha1.ReasonTemporalUnavailable
}

// rejectsPods returns a message if the webhook rejects new pods because the selectors cannot be parsed.
// Otherwise, rejectsPods returns "".
func rejectsPods(p *pass) string {
	if _, err := match.NewScope(&p.set.Spec); err == nil || p.set.Spec.InjectionStrategy.Paused {
		return ""
	}
	return "; until it is corrected, new pods that the SidecarSet could match are rejected"
}
