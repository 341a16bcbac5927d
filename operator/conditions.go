package operator

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/policy"
)

// reasonCannotStart is a reason that nobody else reads.
const reasonCannotStart = "ContainerCannotStart"

// condition is a metav1.Condition without its type, generation and time.
type condition struct {
	status          metav1.ConditionStatus
	reason, message string
}

// setConditions gives each condition exactly one reason (SPEC §8).
func (o *observation) setConditions(status *v1alpha1.SidecarSetStatus, set *v1alpha1.SidecarSet, now time.Time) {
	for _, c := range []struct {
		kind  string
		rules chain
	}{
		{v1alpha1.ConditionProgressing, progressing()},
		{v1alpha1.ConditionAvailable, available()},
		{v1alpha1.ConditionDegraded, degraded()},
		{v1alpha1.ConditionInjected, injected()},
	} {
		decided := decide(c.rules, input{o, set})
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: c.kind, Status: decided.status, Reason: decided.reason, Message: decided.message,
			ObservedGeneration: set.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
}

// input is what a condition is decided from.
type input struct {
	*observation
	set *v1alpha1.SidecarSet
}

// answer is a condition yet to be worded.
type answer struct {
	status          metav1.ConditionStatus
	reason, message func(input) string
}

// chain answers for one condition. Its last rule always holds.
type chain = policy.Chain[input, answer]

func decide(rules chain, in input) condition {
	a := rules.Decide(in)
	return condition{a.status, a.reason(in), a.message(in)}
}

// progressing decides whether pods are on their way to the newest version.
func progressing() chain {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	return chain{
		{When: input.isInvalid, Then: answer{no, text(v1alpha1.ReasonInvalid), input.invalidMessage}},
		{When: inPhase(protocol.PhaseNotUpdate), Then: answer{no, text(v1alpha1.ReasonNotUpdate), andPlan(text("upgrades are off (updateStrategy.type NotUpdate)"))}},
		{When: inPhase(protocol.PhasePaused), Then: answer{no, text(v1alpha1.ReasonPaused), andPlan(text("paused (updateStrategy.paused)"))}},
		{When: input.needsTemporal, Then: answer{no, input.temporalReason, andPlan(input.temporalMessage)}},
		{When: both(input.isInProgress, input.isHeld), Then: answer{no, text(v1alpha1.ReasonPaused), andPlan(input.holdMessage)}},
		{When: both(input.isInProgress, input.hasFault), Then: answer{no, input.faultReason, andPlan(input.faultMessage)}},
		{When: inPhase(protocol.PhaseWaiting), Then: answer{yes, text(v1alpha1.ReasonWaitingForPods), input.planMessage}},
		{When: input.isInProgress, Then: answer{yes, text(v1alpha1.ReasonRolloutProgress), input.planMessage}},
		{When: inPhase(protocol.PhasePartitionReached), Then: answer{no, text(v1alpha1.ReasonPartitionReached), input.planMessage}},
		{When: input.hasNotUpgradable, Then: answer{no, text(v1alpha1.ReasonNotUpgradablePods), input.planMessage}},
		{When: otherwise, Then: answer{no, text(v1alpha1.ReasonRolloutComplete), input.planMessage}},
	}
}

// available decides whether no more pods are unready than maxUnavailable allows.
func available() chain {
	return chain{
		{When: input.isInvalid, Then: answer{metav1.ConditionUnknown, text(v1alpha1.ReasonInvalid), text(podsUnknown)}},
		{When: input.hasTooManyUnready, Then: answer{metav1.ConditionFalse, text(v1alpha1.ReasonWaitingForPods), input.readyMessage}},
		{When: otherwise, Then: answer{metav1.ConditionTrue, text(v1alpha1.ReasonAsExpected), input.readyMessage}},
	}
}

// degraded decides what needs attention, the worst first.
func degraded() chain {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	return chain{
		{When: input.isInvalid, Then: answer{yes, text(v1alpha1.ReasonInvalid), input.invalidAndRefusedMessage}},
		{When: input.needsTemporal, Then: answer{yes, input.temporalReason, input.temporalMessage}},
		{When: input.hasFault, Then: answer{yes, input.faultReason, input.faultMessage}},
		{When: input.hasBroken, Then: answer{yes, input.brokenReason, input.brokenMessage}},
		{When: both(input.upgrades, input.hasNotUpgradable), Then: answer{yes, text(v1alpha1.ReasonNotUpgradablePods), input.notUpgradableMessage}},
		{When: otherwise, Then: answer{no, text(v1alpha1.ReasonAsExpected), text("")}},
	}
}

// injected decides whether every matching pod was injected.
func injected() chain {
	return chain{
		{When: input.isInvalid, Then: answer{metav1.ConditionUnknown, text(v1alpha1.ReasonInvalid), text(podsUnknown)}},
		{When: input.hasUninjected, Then: answer{metav1.ConditionFalse, text(v1alpha1.ReasonPodsWithoutSidecar), input.uninjectedMessage}},
		{When: otherwise, Then: answer{metav1.ConditionTrue, text(v1alpha1.ReasonAsExpected), text("")}},
	}
}

func otherwise(input) bool { return true }

func both(a, b func(input) bool) func(input) bool {
	return func(in input) bool { return a(in) && b(in) }
}

func inPhase(phase protocol.Phase) func(input) bool {
	return func(in input) bool { return in.plan.Phase == phase }
}

func (in input) isInvalid() bool { return in.invalid != nil }

func (in input) isInProgress() bool { return in.inProgress() }

// isHeld reports whether a hold keeps pods from their upgrade.
func (in input) isHeld() bool { return in.hold != nil && in.plan.Counts.Remaining > 0 }

func (in input) hasFault() bool { return in.fault != fault{} }

func (in input) hasBroken() bool { return in.broken.count > 0 }

func (in input) upgrades() bool { return in.plan.Phase != protocol.PhaseNotUpdate }

func (in input) hasNotUpgradable() bool { return in.plan.Counts.NotUpgradable > 0 }

func (in input) hasUninjected() bool { return in.uninjected.count > 0 }

func (in input) hasTooManyUnready() bool {
	unready := in.plan.Counts.Matched - in.plan.Counts.Ready
	return unready > in.plan.Slots || unready > 0 && in.plan.Counts.Ready == 0
}

// needsTemporal reports whether Temporal is unavailable though it is needed: by a
// generation that is not started yet, or by pods that wait for their upgrade.
func (in input) needsTemporal() bool {
	if in.temporal == nil || in.invalid != nil {
		return false
	}
	return !rolloutStarted(in.set) || in.inProgress() && in.plan.Counts.Remaining > 0
}

const podsUnknown = "the pods of this set cannot be determined"

func text(s string) func(input) string { return func(input) string { return s } }

func andPlan(message func(input) string) func(input) string {
	return func(in input) string { return message(in) + "; " + in.plan.Message }
}

func (in input) planMessage() string { return in.plan.Message }

func (in input) invalidMessage() string { return in.invalid.Error() }

// invalidAndRefusedMessage adds what selectors that cannot be parsed do to new pods.
func (in input) invalidAndRefusedMessage() string {
	if _, err := match.NewScope(&in.set.Spec); err == nil || in.set.Spec.InjectionStrategy.Paused {
		return in.invalid.Error()
	}
	return in.invalid.Error() + "; until it is corrected, new pods that the set could match are refused"
}

func (in input) temporalReason() string {
	var throttled throttlingError
	if errors.As(in.temporal, &throttled) {
		return v1alpha1.ReasonEngineThrottled
	}
	return v1alpha1.ReasonEngineUnavailable
}

func (in input) temporalMessage() string { return in.temporal.Error() }

// holdMessage names who paused the run, and why.
func (in input) holdMessage() string { return bySignal("paused", in.hold.Who, in.hold.Why) }

// bySignal says what was done by signal or update, by whom and why, as far as that is
// known.
func bySignal(done, who, why string) string {
	done += " by signal"
	if who != "" {
		done += " from " + who
	}
	if why != "" {
		done += ": " + why
	}
	return done
}

func (in input) faultReason() string { return in.fault.reason }

func (in input) faultMessage() string { return in.fault.message }

func (in input) readyMessage() string {
	return fmt.Sprintf("%d of %d pods ready", in.plan.Counts.Ready, in.plan.Counts.Matched)
}

func (in input) brokenReason() string { return in.broken.reason }

func (in input) brokenMessage() string {
	return fmt.Sprintf("%d of %d pods have a sidecar that cannot start, such as %s (%s)",
		in.broken.count, in.plan.Counts.Matched, in.broken.example, in.broken.detail)
}

func (in input) notUpgradableMessage() string {
	return fmt.Sprintf("%d of %d pods differ in more than images and keep their version until they are created anew, such as %s",
		in.plan.Counts.NotUpgradable, in.plan.Counts.Matched, in.plan.NotUpgradable[0])
}

func (in input) uninjectedMessage() string {
	return fmt.Sprintf("%d pods match but were not injected, such as %s; they get the sidecars once they are created anew",
		in.uninjected.count, in.uninjected.example)
}
