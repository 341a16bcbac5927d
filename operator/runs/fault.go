package runs

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"

	"go.temporal.io/api/workflow/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// maxCauseLength limits the quoted part of a failure, in characters.
const maxCauseLength = 300

// Fault describes a fault of the workers of a run, or a failure to read the run. The zero value means no
// fault. Reason is also the reason of the condition Degraded.
type Fault struct{ Reason, Message string }

const failsRepeatedly = " fails repeatedly"

func rolloutFailing(what, cause string) Fault {
	message := what + failsRepeatedly
	if cause = singleLine(cause); cause != "" {
		message += ": " + cause
	}
	return Fault{v1alpha1.ReasonRolloutFailing, message + " (it is retried; see the logs of the workers)"}
}

// activityPaused returns the fault of a run with an activity that a user or a rule of Temporal has paused.
func (d *diagnoser) activityPaused(run string, pending *workflow.PendingActivityInfo) Fault {
	info := pending.GetPauseInfo()
	by, reason := info.GetManual().GetIdentity(), cmp.Or(info.GetManual().GetReason(), info.GetRule().GetReason())
	if rule := info.GetRule().GetRuleId(); rule != "" {
		by = "workflow rule " + rule
	}
	message := "activity " + pending.GetActivityType().GetName() + " is paused in Temporal"
	if by != "" {
		message += " by " + singleLine(by)
	}
	if reason != "" {
		message += ": " + singleLine(reason)
	}
	return Fault{v1alpha1.ReasonRolloutFailing, message + fmt.Sprintf(" (unpause it: temporal activity unpause -n %s -w %s --activity-id %s)", d.namespace, run, pending.GetActivityId())}
}

// UnreadableFault returns the fault if the operator cannot decode the pause of a run.
func UnreadableFault(cause error) Fault {
	return Fault{v1alpha1.ReasonRunUnreadable, "the operator cannot read the pause of the run: " + singleLine(cause.Error()) +
		" (give it the payload keys that the workers have: --temporal-payload-key-dir)"}
}

// SameFailure reports whether two faults differ only in the quoted cause.
func (f Fault) SameFailure(other Fault) bool {
	what, _, ok := strings.Cut(f.Message, failsRepeatedly)
	otherWhat, _, otherOK := strings.Cut(other.Message, failsRepeatedly)
	return ok && otherOK && f.Reason == other.Reason && what == otherWhat
}

// singleLine turns the message of a failure into one line of limited length.
func singleLine(message string) string {
	line := strings.Join(strings.FieldsFunc(message, func(c rune) bool { return unicode.IsControl(c) || c == ' ' }), " ")
	if letters := []rune(line); len(letters) > maxCauseLength {
		return string(letters[:maxCauseLength]) + "…"
	}
	return line
}
