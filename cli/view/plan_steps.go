package view

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// PlannedStep is a step of the RolloutPolicy in a plan.
type PlannedStep struct {
	// Title is the title of the step, or empty for the pods after the last step.
	Title string `json:"title,omitempty"`
	// Pods is the number of pods that the step upgrades. Updated is the number of updated pods at the end of
	// the step. Of is the number of pods of the rollout.
	Pods    int `json:"pods"`
	Updated int `json:"updated"`
	Of      int `json:"of"`
	// Bake, Gates and Approval are not set for the step in which the rollout ends.
	Bake     *metav1.Duration `json:"bake,omitempty"`
	Gates    []string         `json:"gates,omitempty"`
	Approval bool             `json:"approval,omitempty"`
}

// stage returns the current stage if the spec of the plan is the stored spec, or if the content is quarantined.
// Otherwise, stage returns the first step. Without a policy, stage returns nil.
func (in *PlanInput) stage() (*protocol.Stage, error) {
	var current *protocol.Stage
	if in.Stored != nil && (stage.QuarantineOf(in.Set) != nil || equality.Semantic.DeepEqual(in.Stored.Spec, in.Set.Spec)) {
		current = stage.ForStart(in.Set)
	}
	return stage.Resolve(in.Set, current, in.Policies)
}

// addStep adds the current step of the policy to p. end is the last plan of this step.
func (p *Plan) addStep(current *protocol.Stage, end *rollout.Plan) {
	if current == nil {
		return
	}
	step := PlannedStep{Pods: p.upgraded(), Updated: end.Counts.Updated, Of: end.Counts.Updated + end.Counts.Remaining}
	for _, earlier := range p.PolicySteps {
		step.Pods -= earlier.Pods
	}
	if !current.Done {
		step.Title = current.Title()
	}
	if end.Phase == protocol.PhaseStepReached {
		step.Approval = current.Step.Approval
		if current.Step.Bake > 0 {
			step.Bake = &metav1.Duration{Duration: current.Step.Bake}
		}
		for _, gate := range current.Step.Gates {
			step.Gates = append(step.Gates, gate.Name)
		}
	}
	if p.Policy = current.Policy; step.Title != "" || step.Pods > 0 {
		p.PolicySteps = append(p.PolicySteps, step)
	}
}

// stepLines returns a line for each step of the policy.
func (p *Plan) stepLines() []string {
	if p.Policy == "" {
		return nil
	}
	lines := []string{"RolloutPolicy " + p.Policy + ":"}
	for i := range p.PolicySteps {
		step := &p.PolicySteps[i]
		line := fmt.Sprintf("%s (%d of %d)", rollout.Count(step.Pods, "more pod"), step.Updated, step.Of)
		if step.Pods == step.Updated {
			line = rollout.Count(step.Pods, "pod")
		}
		if step.Bake != nil {
			line += ", bakes " + duration.HumanDuration(step.Bake.Duration)
		}
		if len(step.Gates) > 0 {
			line += ", waits for gate " + strings.Join(step.Gates, " and gate ")
		}
		if step.Approval {
			line += ", waits for approval"
		}
		if step.Title == "" {
			lines = append(lines, "  then "+line)
			continue
		}
		lines = append(lines, "  "+step.Title+": "+line)
	}
	return lines
}
