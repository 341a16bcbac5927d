package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

const (
	barWidth = 24
	// factWidth is the width of the column with the names of facts.
	factWidth = 11
)

// Text returns the facts, and then a tree of the SidecarSet, the revisions, the owners and the pods.
func (r *Rollout) Text(s Style) string {
	return text(append(append(r.head(s), ""), r.tree(s)...))
}

func (r *Rollout) head(s Style) []string {
	var lines []string
	for _, fact := range r.Facts(s) {
		text := strings.ReplaceAll(fact.Text, "\n", "\n"+strings.Repeat(" ", factWidth))
		lines = append(lines, fmt.Sprintf("%-*s%s", factWidth, fact.Name+":", text))
	}
	return lines
}

// Fact is a text about a rollout, with a name such as Status.
type Fact struct{ Name, Text string }

// Facts returns the facts about the rollout, except the pods. The fact Step has a line for each step.
func (r *Rollout) Facts(s Style) []Fact {
	var facts []Fact
	fact := func(name, text string) {
		if text != "" {
			facts = append(facts, Fact{name, text})
		}
	}
	fact("Name", s.Paint.in(Strong, r.Name))
	fact("Status", r.statusLine(s))
	fact("Progress", r.bar(s))
	fact("Slots", r.slotsLine())
	fact("Images", joinImages(r.Images))
	if r.PausedBySpec {
		fact("Paused", s.Paint.in(Busy, "by spec.updateStrategy.paused"))
	}
	if r.InjectionPaused {
		fact("Injection", s.Paint.in(Busy, "paused by spec.injectionStrategy.paused")+": new pods get no sidecars")
	}
	if r.Pause != nil {
		fact("Paused", s.Paint.in(Busy, pausedFor(r.Pause, s.Now)+pausedBy(r.Pause)))
	}
	if r.Phase == protocol.PhaseFrozen {
		fact("Frozen", s.Paint.in(Busy, r.frozenBy()))
	}
	if r.rollback != "" {
		fact("Rollback", s.Paint.in(Bad, r.Message))
	}
	fact("Step", strings.Join(r.stepLines(s), "\n"))
	fact("Run", r.runLine(s))
	fact("Waiting", r.waitingLine(s))
	fact("Lost", s.Paint.in(Bad, r.lostPodsLine()))
	fact(r.Fault.part(), s.Paint.in(Bad, r.Fault.Message))
	for _, c := range r.Conditions {
		if c.needsAttention() && (r.Observed || !cannotStart(c.Reason)) && c.Reason != r.Fault.Reason {
			fact(c.Type, s.Paint.in(Bad, c.Reason)+": "+r.messageOf(&c))
		}
	}
	fact("Next", strings.Join(r.next(s.Now), "; "))
	return facts
}

// cannotStart reports whether a reason of Degraded means that a container cannot start.
func cannotStart(reason string) bool {
	return reason == podstate.ImagePullBackOff || reason == v1alpha1.ReasonContainerCannotStart
}

func (c *Condition) needsAttention() bool {
	switch c.Type {
	case v1alpha1.ConditionDegraded:
		return c.Status == "True"
	case v1alpha1.ConditionInjected, v1alpha1.ConditionAvailable:
		return c.Status == "False"
	}
	return false
}

func (r *Rollout) statusLine(s Style) string {
	line := s.Paint.in(headlineTone(r.Headline), withTimeLeft(r.Headline, bakesUntil(r.Phase, r.stage), s.Now))
	if !r.Observed && !r.terminating {
		line += fmt.Sprintf(", the operator has not observed generation %d yet", r.Generation)
	}
	return line
}

// bar returns a bar with the updated and ready pods, the updated pods that are not ready, and the other pods.
func (r *Rollout) bar(s Style) string {
	c := r.Counts
	full, part := 0, 0
	if c.Matched > 0 {
		full = barWidth * c.UpdatedReady / c.Matched
		part = barWidth*c.Updated/c.Matched - full
	}
	return s.Paint.in(Good, strings.Repeat("█", full)) + s.Paint.in(Busy, strings.Repeat("▒", part)) +
		s.Paint.in(Faint, strings.Repeat("░", barWidth-full-part)) +
		fmt.Sprintf(" %d of %d updated, %d of them ready, %d to go", c.Updated, c.Matched, c.UpdatedReady, c.Remaining)
}

func (r *Rollout) slotsLine() string {
	used := min(r.Counts.Unavailable, r.Limits.Slots)
	line := fmt.Sprintf("%d of %d used (maxUnavailable %s)", used, r.Limits.Slots, r.Limits.MaxUnavailable)
	if more := r.Counts.Unavailable - used; more > 0 {
		line += fmt.Sprintf(", %d more unavailable", more)
	}
	if r.Limits.NotReady > 0 { // These pods are not ready for a reason other than an upgrade.
		line += fmt.Sprintf(", %s not ready (uses no slot)", rollout.Count(r.Limits.NotReady, "more pod"))
	}
	if r.Limits.Partition != "" {
		line += ", partition " + r.Limits.Partition
	}
	return line
}

func joinImages(images []Image) string {
	words := make([]string, len(images))
	for i, image := range images {
		words[i] = image.Container + "=" + image.Image
	}
	return strings.Join(words, ", ")
}

// pausedFor returns the duration of a pause, or an empty string if the start of the pause is unknown. pausedFor
// does not use the transition time of a condition, because consecutive pauses may share one transition.
func pausedFor(pause *protocol.Pause, now time.Time) string {
	if pause.At.IsZero() {
		return ""
	}
	return "for " + age(now, pause.At) + " "
}

// pausedBy returns the user and the reason of a pause in one line.
func pausedBy(pause *protocol.Pause) string {
	text := "by an unknown user"
	if pause.By != "" {
		text = "by " + pause.By
	}
	if pause.Reason != "" {
		text += ": " + pause.Reason
	}
	return OneLine(text)
}

func (r *Rollout) runLine(s Style) string {
	switch {
	case r.RunUnknown != "":
		return s.Paint.in(Faint, r.RunUnknown)
	case r.Run == nil && r.Temporal != "":
		return s.Paint.in(Faint, "none is open in "+r.Temporal)
	case r.Run == nil:
		return s.Paint.in(Faint, "none is open")
	}
	// The line does not show the phase of the run, because the status line also considers the conditions and
	// the pods.
	line := fmt.Sprintf("generation %d, which began %s ago, ", r.Run.Generation, age(s.Now, r.Run.Since))
	if r.Run.Phase == protocol.PhaseProgressing && r.Run.Batches > 0 {
		line += fmt.Sprintf("batch %d in progress", r.Run.Batches) // The run counts the pods of a batch when the batch ends.
	} else {
		line += rollout.Count(r.Run.Batches, "batch") + ", " + rollout.Count(r.Run.Upgraded, "upgrade") + " started"
	}
	if r.Run.Failed > 0 {
		line += fmt.Sprintf(", %s rejected", rollout.Count(r.Run.Failed, "write"))
	}
	return line
}

// waitingLine returns the line about the pod whose upgrade has been in progress the longest. If no upgrade is
// in progress, the line is about the first updated pod that is not ready. If all updated pods are ready, or if
// the run does not respond, waitingLine returns an empty string.
func (r *Rollout) waitingLine(s Style) string {
	longest := r.longest()
	switch unready := r.unready(); {
	case r.notResponding:
		return ""
	case longest == nil && unready != nil:
		return fmt.Sprintf("%s/%s: %s", unready.Namespace, unready.Name, unready.Reason)
	case longest == nil:
		return ""
	}
	return fmt.Sprintf("%s/%s, written %s ago: %s", longest.Namespace, longest.Name, age(s.Now, *longest.Since), longest.Reason)
}

// longest returns the pod whose upgrade has been in progress the longest, or nil.
func (r *Rollout) longest() *Pod {
	return r.longestOf(func(pod *Pod) bool { return pod.Since != nil })
}

// longestOf returns the pod with the earliest Since among the pods for which in returns true, or nil. For a pod
// without Since, in must return false.
func (r *Rollout) longestOf(in func(*Pod) bool) *Pod {
	var longest *Pod
	for _, pod := range r.pods() {
		if in(pod) && (longest == nil || pod.Since.Before(*longest.Since)) {
			longest = pod
		}
	}
	return longest
}

// unready returns the first updated pod that is not ready and has no recorded upgrade, or nil.
func (r *Rollout) unready() *Pod {
	for _, pod := range r.pods() {
		if pod.Phase == PodUnready || pod.Phase == PodUpgrading && pod.Since == nil {
			return pod
		}
	}
	return nil
}

func (r *Rollout) pods() []*Pod {
	var all []*Pod
	for i := range r.Revisions {
		for _, owner := range r.Revisions[i].Owners {
			for k := range owner.Pods {
				all = append(all, &owner.Pods[k])
			}
		}
	}
	return all
}

// Line returns the progress of the rollout in one line.
func (r *Rollout) Line() string {
	line := fmt.Sprintf("sidecarset/%s: %s, %s", r.Name, r.Headline, r.Message)
	if r.Phase == protocol.PhaseAwaitingApproval {
		line += "; " + ApproveCommand(r.Name)
	}
	if r.PausedBySpec {
		line += "; paused by spec.updateStrategy.paused"
	}
	if r.Pause != nil {
		line += "; paused " + pausedBy(r.Pause)
	}
	if !r.Observed && !r.terminating {
		line += fmt.Sprintf("; generation %d is not observed yet", r.Generation)
	}
	return OneLine(line) // The message may contain a reason that a user wrote.
}
