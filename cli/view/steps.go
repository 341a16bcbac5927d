package view

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// StepState is the state of a step of a rollout.
type StepState string

// StepState has one of these values.
const (
	StepEnded            StepState = "Ended"
	StepUpgrading        StepState = "Upgrading"
	StepBaking           StepState = "Baking"
	StepGateRunning      StepState = "GateRunning"
	StepAwaitingApproval StepState = "AwaitingApproval"
	StepPaused           StepState = "Paused"
	StepNext             StepState = "Next"
)

// allPods is the value of upTo for a step that contains all pods.
const allPods = "100%"

// Step is a step of a rollout with a RolloutPolicy.
type Step struct {
	Number int    `json:"number"`
	Name   string `json:"name,omitempty"`
	// UpTo is the number or the percentage of pods that are updated at the end of the step.
	UpTo string `json:"upTo,omitempty"`
	Bake string `json:"bake,omitempty"`
	// Approval reports whether the step waits for an approval after its bake time.
	Approval   bool               `json:"approval,omitempty"`
	State      StepState          `json:"state"`
	BakesUntil *time.Time         `json:"bakesUntil,omitempty"`
	ApprovedBy *protocol.Approval `json:"approvedBy,omitempty"`
	// Gates contains the gates of the current step.
	Gates []protocol.GateState `json:"gates,omitempty"`
}

// StageOf returns the stage of a rollout. The stage of the run has priority over the stage in the status,
// because the status may be older.
func StageOf(set *v1alpha1.SidecarSet, run *protocol.RolloutStatus) *protocol.Stage {
	if run != nil && run.Stage != nil && run.Generation == set.Generation {
		return run.Stage
	}
	return stage.OfStatus(set)
}

// reached replaces the phase StepReached of the plan with the phase of the wait, such as Baking, and sets the
// reason why the step has not ended.
func (r *Rollout) reached(now time.Time) {
	if r.Phase != protocol.PhaseStepReached {
		return
	}
	if r.Phase, r.waits = r.stage.Wait(now); r.Phase == protocol.PhaseProgressing {
		r.waits = ""
		return
	}
	r.Message = r.waits + "; " + r.Message
}

// stepTitle returns the name of the current step in a headline. If s is nil, stepTitle returns an empty string.
func stepTitle(s *protocol.Stage) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("step %d of %d", s.Index+1, s.Steps)
}

// bakesUntil returns the end of the bake time in phase Baking, or nil.
func bakesUntil(phase protocol.Phase, s *protocol.Stage) *time.Time {
	if phase != protocol.PhaseBaking || s == nil || s.Reached == nil || s.Step == nil {
		return nil
	}
	end := s.BakeEnd()
	return &end
}

// withTimeLeft adds the remaining bake time to a headline. Headline does not contain this time, because a
// watch prints a line for each change of the headline.
func withTimeLeft(headline string, until *time.Time, now time.Time) string {
	if before, ok := strings.CutSuffix(headline, ")"); ok && until != nil && strings.HasPrefix(headline, string(protocol.PhaseBaking)) {
		return before + ", " + timeLeft(*until, now) + ")"
	}
	return headline
}

func timeLeft(until, now time.Time) string {
	return duration.HumanDuration(max(until.Sub(now), 0)) + " left"
}

// addSteps adds the steps of a rollout that has pods left to upgrade. A rollback has no steps. If policy is nil,
// addSteps adds only the current step.
func (r *Rollout) addSteps(policy *outriggerv1.RolloutPolicy, now time.Time) {
	s := r.stage
	if s == nil || r.Phase.Ended() || r.rollback != "" || s.Quarantine != nil && r.Phase == protocol.PhaseFrozen {
		return
	}
	r.Policy = s.Policy
	if policy != nil {
		for i, step := range stage.Steps(policy) {
			step := newStep(i, copyOf(&step))
			if s.Done || i < s.Index {
				step.State = StepEnded
			}
			r.Steps = append(r.Steps, step)
		}
	}
	if s.Done {
		return
	}
	current := newStep(s.Index, s.Step)
	current.State, current.ApprovedBy = r.stepState(now), s.Approval
	current.Gates = gatesOf(s)
	if current.State == StepBaking {
		current.BakesUntil = bakesUntil(protocol.PhaseBaking, s)
	}
	switch {
	case s.Index >= len(r.Steps):
		r.Steps = append(r.Steps, current)
	case s.Step == nil:
		r.Steps[s.Index].State = current.State
	default:
		r.Steps[s.Index] = current
	}
}

// copyOf returns the fields of a step that newStep shows.
func copyOf(step *outriggerv1.RolloutStep) *protocol.Step {
	copied := &protocol.Step{Name: step.Name, UpTo: step.UpTo, Approval: step.Approval != nil}
	if step.Bake != nil {
		copied.Bake = step.Bake.Duration
	}
	return copied
}

func newStep(index int, step *protocol.Step) Step {
	found := Step{Number: index + 1, State: StepNext}
	if step == nil {
		return found
	}
	found.Name, found.UpTo, found.Approval = step.Name, step.UpTo.String(), step.Approval
	if step.Bake > 0 {
		found.Bake = step.Bake.String()
	}
	return found
}

// stepState returns the state of the current step.
func (r *Rollout) stepState(now time.Time) StepState {
	phase, _ := r.stage.Wait(now)
	switch {
	case phase == protocol.PhaseBaking:
		return StepBaking
	case phase == protocol.PhaseAwaitingApproval:
		return StepAwaitingApproval
	case phase == protocol.PhaseGateRunning && r.Phase != protocol.PhasePaused:
		return StepGateRunning
	case r.Phase == protocol.PhasePaused:
		return StepPaused
	case r.stage.Reached != nil:
		return StepEnded
	}
	return StepUpgrading
}

// stepLines returns a line for each step, and a line for the pods after the last step.
func (r *Rollout) stepLines(s Style) []string {
	if r.stage == nil || r.Policy == "" {
		return nil
	}
	first := fmt.Sprintf("%d of %d", r.stage.Index+1, r.stage.Steps)
	if r.stage.Done {
		first = "all ended"
	}
	lines := []string{first + ", RolloutPolicy " + r.Policy}
	if step := r.stage.Step; step != nil && step.MaxFailed != nil {
		lines[0] += ", at most " + step.MaxFailed.String() + " failed pods"
	}
	if stage.LimitsUnavailable(r.stage) {
		lines[0] += limitsText(r.stage.Step)
	}
	for i := range r.Steps {
		lines = append(lines, r.Steps[i].line(s))
		lines = append(lines, r.Steps[i].gateLines(s)...)
	}
	rest := "all remaining pods"
	switch last := len(r.Steps) - 1; {
	case r.stage.Done:
		lines = append(lines, s.Paint.in(Busy, "● "+rest))
	case last+1 >= r.stage.Steps && r.Steps[last].UpTo != allPods:
		lines = append(lines, s.Paint.in(Faint, "○ "+rest))
	}
	return lines
}

// waitForLimits sets the phase and the message of the run if the run waits for the limits of a policy. The plan
// of a view does not apply these limits, because a view reads neither the labels of nodes nor the
// PodDisruptionBudgets.
func (r *Rollout) waitForLimits(run *protocol.RolloutStatus) {
	if run != nil && run.Generation == r.Generation && run.Phase == protocol.PhaseWaiting && r.Phase == protocol.PhaseProgressing && stage.LimitsUnavailable(r.stage) {
		r.Phase, r.Message = run.Phase, run.Message
	}
}

// limitsText describes the limits that a step sets for unavailable pods.
func limitsText(step *protocol.Step) (text string) {
	if step.MaxPerOwner > 0 {
		text += fmt.Sprintf(", at most %d unavailable of each owner", step.MaxPerOwner)
	}
	if domains := step.Domains; domains != nil {
		text += fmt.Sprintf(", unavailable in at most %d of the domains %s", domains.MaxUnavailable, domains.TopologyKey)
	}
	if step.RespectBudgets {
		text += ", within PodDisruptionBudgets"
	}
	return text
}

func (p *Step) line(s Style) string {
	title := fmt.Sprintf("step %d", p.Number)
	if p.Name != "" {
		title += " (" + p.Name + ")"
	}
	switch state := p.state(s.Now); p.State {
	case StepEnded:
		return s.Paint.in(Good, "✔ "+title) + p.definition(": ", "")
	case StepNext:
		return s.Paint.in(Faint, "○ "+title) + p.definition(": ", "")
	default:
		return s.Paint.in(Busy, "● "+title+": "+state) + p.definition(" (", ")")
	}
}

// definition describes the limits of a step. The text begins with before and ends with after. If the limits are
// unknown, definition returns an empty string.
func (p *Step) definition(before, after string) string {
	if p.UpTo == "" {
		return ""
	}
	upTo := intstr.Parse(p.UpTo)
	text := "up to " + p.UpTo + " of the pods"
	switch {
	case p.UpTo == allPods:
		text = "all pods"
	case upTo.Type == intstr.Int:
		text = "up to " + rollout.Count(upTo.IntValue(), "pod")
	}
	if bake, err := time.ParseDuration(p.Bake); err == nil {
		text += ", bakes " + duration.HumanDuration(bake)
	}
	if p.Approval {
		text += ", needs approval"
	}
	return before + text + after
}

// state describes the state of the current step.
func (p *Step) state(now time.Time) string {
	switch p.State {
	case StepBaking:
		text := "baking, " + timeLeft(*p.BakesUntil, now)
		if p.ApprovedBy != nil {
			text += ", approved " + pausedBy(&protocol.Pause{By: p.ApprovedBy.By, Reason: p.ApprovedBy.Reason})
		}
		return text
	case StepAwaitingApproval:
		return "waits for approval"
	case StepGateRunning:
		return "waits for its gates"
	case StepPaused:
		return "paused"
	}
	return "upgrading"
}

// Continues describes the events for which an approved rollout still waits. If the rollout continues
// immediately, Continues returns an empty string.
func Continues(set string, s *protocol.Stage, now time.Time) string {
	switch phase, _ := s.Wait(now); {
	case phase == protocol.PhaseBaking:
		return "the rollout continues after the bake time, " + timeLeft(s.BakeEnd(), now) + " (" + endBake + PromoteCommand(set) + ")"
	case s.Reached == nil && s.Step != nil && s.Step.Bake > 0:
		return "the rollout continues once the pods of the step are updated and ready, and the bake time of " + duration.HumanDuration(s.Step.Bake) + " has ended"
	case s.Reached == nil:
		return "the rollout continues once the pods of the step are updated and ready"
	}
	return ""
}
