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
)

// Reasons that only the operator gives.
const (
	reasonInvalid     = "Invalid"
	reasonCannotStart = "ContainerCannotStart"
	// reasonThrottled is for a Temporal that answers, but not every call.
	reasonThrottled = "EngineThrottled"
)

const podsUnknown = "the pods of this set cannot be told"

// condition is a metav1.Condition without its type, generation and time.
type condition struct {
	status          metav1.ConditionStatus
	reason, message string
}

// setConditions gives each condition exactly one reason (SPEC §8).
func (o *observation) setConditions(status *v1alpha1.SidecarSetStatus, set *v1alpha1.SidecarSet, now time.Time) {
	for _, c := range []struct {
		kind string
		condition
	}{
		{v1alpha1.ConditionProgressing, o.progressing(set)},
		{v1alpha1.ConditionAvailable, o.available()},
		{v1alpha1.ConditionDegraded, o.degraded(set)},
		{v1alpha1.ConditionInjected, o.injected()},
	} {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: c.kind, Status: c.status, Reason: c.reason, Message: c.message,
			ObservedGeneration: set.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
}

// progressing reports whether pods are on their way to the newest version.
func (o *observation) progressing(set *v1alpha1.SidecarSet) condition {
	if o.invalid != nil {
		return condition{metav1.ConditionFalse, reasonInvalid, o.invalid.Error()}
	}
	message := o.plan.Message
	switch {
	case o.plan.Phase == protocol.PhaseNotUpdate:
		return condition{metav1.ConditionFalse, v1alpha1.ReasonNotUpdate, "upgrades are off (updateStrategy.type NotUpdate); " + message}
	case o.plan.Phase == protocol.PhasePaused:
		return condition{metav1.ConditionFalse, v1alpha1.ReasonPaused, "paused (updateStrategy.paused); " + message}
	case o.stalled(set):
		return condition{metav1.ConditionFalse, o.temporalReason(), o.temporal.Error() + "; " + message}
	case o.inProgress():
		return o.moving()
	case o.plan.Phase == protocol.PhasePartitionReached:
		return condition{metav1.ConditionFalse, v1alpha1.ReasonPartitionReached, message}
	case o.plan.Counts.NotUpgradable > 0:
		return condition{metav1.ConditionFalse, v1alpha1.ReasonNotUpgradablePods, message}
	}
	return condition{metav1.ConditionFalse, v1alpha1.ReasonRolloutComplete, message}
}

// moving tells how a rollout that is under way gets on.
func (o *observation) moving() condition {
	message := o.plan.Message
	switch {
	case o.hold != nil && o.plan.Counts.Remaining > 0:
		return condition{metav1.ConditionFalse, v1alpha1.ReasonPaused, paused(o.hold) + "; " + message}
	case o.fault != fault{}:
		return condition{metav1.ConditionFalse, o.fault.reason, o.fault.message + "; " + message}
	case o.plan.Phase == protocol.PhaseWaiting:
		return condition{metav1.ConditionTrue, v1alpha1.ReasonWaitingForPods, message}
	}
	return condition{metav1.ConditionTrue, v1alpha1.ReasonRolloutProgress, message}
}

// stalled reports whether Temporal is missed: by a generation that is not
// started yet, or by pods that wait for their upgrade.
func (o *observation) stalled(set *v1alpha1.SidecarSet) bool {
	if o.temporal == nil || o.invalid != nil {
		return false
	}
	if !rolloutStarted(set) {
		return true
	}
	switch o.plan.Phase {
	case protocol.PhaseProgressing, protocol.PhaseWaiting:
		return o.plan.Counts.Remaining > 0
	}
	return false
}

func (o *observation) temporalReason() string {
	var throttled throttlingError
	if errors.As(o.temporal, &throttled) {
		return reasonThrottled
	}
	return v1alpha1.ReasonEngineUnavailable
}

// paused says who paused the run, and why.
func paused(hold *v1alpha1.RolloutHold) string {
	message := "paused by signal"
	if hold.Who != "" {
		message += " from " + hold.Who
	}
	if hold.Why != "" {
		message += ": " + hold.Why
	}
	return message
}

// available reports whether no more pods are unready than one allows for.
func (o *observation) available() condition {
	if o.invalid != nil {
		return condition{metav1.ConditionUnknown, reasonInvalid, podsUnknown}
	}
	counts := o.plan.Counts
	message := fmt.Sprintf("%d of %d pods ready", counts.Ready, counts.Matched)
	unready := counts.Matched - counts.Ready
	if unready > o.plan.Slots || unready > 0 && counts.Ready == 0 {
		return condition{metav1.ConditionFalse, v1alpha1.ReasonWaitingForPods, message}
	}
	return condition{metav1.ConditionTrue, v1alpha1.ReasonAsExpected, message}
}

// degraded tells what somebody should look at, the worst first.
func (o *observation) degraded(set *v1alpha1.SidecarSet) condition {
	switch {
	case o.invalid != nil:
		return condition{metav1.ConditionTrue, reasonInvalid, o.invalid.Error() + consequence(set)}
	case o.stalled(set):
		return condition{metav1.ConditionTrue, o.temporalReason(), o.temporal.Error()}
	case o.fault != fault{}:
		return condition{metav1.ConditionTrue, o.fault.reason, o.fault.message}
	case o.broken.count > 0:
		return condition{metav1.ConditionTrue, o.broken.reason,
			fmt.Sprintf("%d of %d pods have a sidecar that cannot start, such as %s (%s)", o.broken.count, o.plan.Counts.Matched, o.broken.example, o.broken.detail)}
	case o.plan.Counts.NotUpgradable > 0 && o.plan.Phase != protocol.PhaseNotUpdate:
		return condition{metav1.ConditionTrue, v1alpha1.ReasonNotUpgradablePods, o.notUpgradable()}
	}
	return condition{metav1.ConditionFalse, v1alpha1.ReasonAsExpected, ""}
}

// consequence tells what selectors that cannot be read do to new pods.
func consequence(set *v1alpha1.SidecarSet) string {
	if _, err := match.NewScope(&set.Spec); err == nil || set.Spec.InjectionStrategy.Paused {
		return ""
	}
	return "; until it is corrected, new pods that the set could match are refused"
}

func (o *observation) notUpgradable() string {
	return fmt.Sprintf("%d of %d pods differ in more than images and keep their version until they are created anew, such as %s",
		o.plan.Counts.NotUpgradable, o.plan.Counts.Matched, o.plan.NotUpgradable[0])
}
