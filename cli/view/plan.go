package view

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// PlanInput contains the data for a Plan. Set is the version for which the plan is made, with defaults and
// hashes.
type PlanInput struct {
	Input
	// Stored is the SidecarSet in the cluster. Stored is nil if the SidecarSet is new.
	Stored *v1alpha1.SidecarSet
	// Rejected contains the reasons why admission would reject the SidecarSet.
	Rejected []string
	// Unknown contains the fields of the file that SidecarSets do not have.
	Unknown []string
	// Policies contains the RolloutPolicies of the cluster. PoliciesUnknown is the reason why the
	// RolloutPolicies are unknown.
	Policies        []outriggerv1.RolloutPolicy
	PoliciesUnknown string
	// Domains returns a function that maps a node to its topology domain, the value of the label topologyKey.
	// If Domains fails, the plan has a note and no limit of domains. Domains is nil if nodes are not read.
	Domains func(topologyKey string) (func(node string) string, error)
	// Pace is the pace of the last rollout. Pace is nil if there was no rollout, or if PaceUnknown is set.
	Pace        *Pace
	PaceUnknown string
}

// Pace is the speed of a rollout.
type Pace struct {
	Pods int           `json:"pods"`
	Took time.Duration `json:"took"`
}

// Plan is the effect that the rollout of a version would have on the existing pods.
type Plan struct {
	Name     string          `json:"name"`
	Rejected []string        `json:"refused,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
	Images   []Image         `json:"images"`
	Counts   protocol.Counts `json:"counts"`
	Limits   Limits          `json:"window"`
	// Now is the number of pods that the first batch of the run upgrades at once. Queued is the number of pods
	// that the first batch upgrades later, as slots are released.
	Now    int `json:"now"`
	Queued int `json:"queued"`
	// Policy is the name of the RolloutPolicy that applies.
	Policy      string        `json:"policy,omitempty"`
	PolicySteps []PlannedStep `json:"policySteps,omitempty"`
	// Batches contains groups of pods that fit in maxUnavailable. The worker upgrades the pods in this order,
	// as slots are released.
	Batches [][]string `json:"batches,omitempty"`
	// Stay contains the pods that keep their version.
	Stay []StayingPod `json:"stay,omitempty"`
	// Estimate is nil if the pace is unknown.
	Estimate *time.Duration `json:"estimate,omitempty"`
	Pace     *Pace          `json:"pace,omitempty"`
	// PaceUnknown is the reason why the pace of the last rollout is unknown.
	PaceUnknown string `json:"paceUnknown,omitempty"`
}

// StayingPod is a pod that keeps its version.
type StayingPod struct {
	Pod    string `json:"pod"`
	Reason string `json:"why"`
}

// NewPlan simulates the rollout: NewPlan calls the planner of the worker repeatedly, and after each call, the
// pods of the returned batch count as upgraded and ready.
func NewPlan(in *PlanInput) (*Plan, error) {
	matched, err := in.population()
	if err != nil {
		return nil, err
	}
	first, err := rollout.Next(in.Set, matched, nil)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		Name: in.Set.Name, Rejected: in.Rejected, Images: images(&in.Set.Spec), Counts: first.Counts, Limits: limitsOf(in.Set, &first),
		PaceUnknown: in.PaceUnknown,
	}
	if p.Notes, err = in.notes(); err != nil {
		return nil, err
	}
	last, err := p.simulate(in, matched)
	if err != nil {
		return nil, err
	}
	p.addStaying(in, matched, &last)
	if in.Stored != nil && p.upgraded() == 0 && equality.Semantic.DeepEqual(in.Stored.Spec, in.Set.Spec) {
		p.Notes = append(p.Notes, "nothing changes, because the SidecarSet has this spec: plan another image with --image, or another spec with -f")
	}
	if upgraded := p.upgraded(); in.Pace != nil && in.Pace.Pods > 0 && upgraded > 0 {
		// The product of nanoseconds and pods could overflow an int64.
		if estimate := float64(in.Pace.Took) / float64(in.Pace.Pods) * float64(upgraded); estimate < math.MaxInt64 {
			p.Estimate, p.Pace = new(time.Duration(estimate)), in.Pace
		}
	}
	return p, nil
}

// population returns the matched pods. population first sets status.resizableHashes, because the operator has
// not compared the planned content with the revisions yet.
func (in *PlanInput) population() ([]rollout.Pod, error) {
	completed, err := revision.Completed(in.Set)
	if err != nil {
		return nil, err
	}
	if in.Set.Status.ResizableHashes, err = revision.ResizableHashes(completed, in.Revisions); err != nil {
		return nil, err
	}
	return rollout.Population(in.Set, in.Pods, in.NamespaceLabels)
}

func (in *PlanInput) notes() ([]string, error) {
	var notes []string
	set := in.Set
	for _, field := range in.Unknown {
		notes = append(notes, field+": check its spelling")
	}
	if in.Stored == nil {
		missing, err := Missing(&in.Input)
		if err != nil {
			return nil, err
		}
		notes = append(notes, fmt.Sprintf("the SidecarSet is new: pods get it when they are created; %s match now", rollout.Count(len(missing), "pod")))
	}
	if set.Spec.UpdateStrategy.Paused {
		notes = append(notes, "spec.updateStrategy.paused is true: no pod is upgraded until it is false")
	}
	if pause := pauseOf(set, nil); pause != nil {
		notes = append(notes, "the run is paused "+pausedBy(pause))
	}
	if set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType {
		notes = append(notes, "spec.updateStrategy.type is NotUpdate: no pod is upgraded")
	}
	if in.PoliciesUnknown != "" {
		notes = append(notes, "without the RolloutPolicies, their steps are not known: "+in.PoliciesUnknown)
	}
	if changed := changedInitImages(in.Stored, set); len(changed) > 0 {
		notes = append(notes, "only new pods get the new image of ordinary init containers: spec.initContainers"+fmt.Sprint(changed))
	}
	return notes, nil
}

// changedInitImages returns the names of the ordinary init containers whose image changes. These init
// containers do not run again in existing pods (SPEC §9.1).
func changedInitImages(stored, set *v1alpha1.SidecarSet) []string {
	if stored == nil {
		return nil
	}
	before := map[string]string{}
	for i := range stored.Spec.InitContainers {
		before[stored.Spec.InitContainers[i].Name] = stored.Spec.InitContainers[i].Image
	}
	var changed []string
	for i := range set.Spec.InitContainers {
		c := &set.Spec.InitContainers[i].Container
		if image, known := before[c.Name]; known && image != c.Image && !revision.IsNativeSidecar(c) {
			changed = append(changed, c.Name)
		}
	}
	return changed
}

// simulate adds the batches and the steps to p, and returns the plan after the last batch. simulate changes
// the states of the pods in matched.
func (p *Plan) simulate(in *PlanInput, matched []rollout.Pod) (rollout.Plan, error) {
	running := in.Set.DeepCopy()
	running.Spec.UpdateStrategy.Paused = false
	current, err := in.stage()
	if err != nil {
		return rollout.Plan{}, err
	}
	if stage.LimitsUnavailable(current) && current.Step.RespectBudgets {
		p.Notes = append(p.Notes, "the RolloutPolicy respects PodDisruptionBudgets, which may make batches smaller")
	}
	byName := converged(matched)
	for {
		plan, err := rollout.NextInCluster(running, matched, nil, current, rollout.Cluster{Domain: p.domainOf(in, current)})
		if err != nil {
			return plan, err
		}
		if plan.Phase == protocol.PhaseStepReached {
			p.addStep(current, &plan)
			if current, err = stage.Resolve(in.Set, current.Next(), in.Policies); err != nil {
				return plan, err
			}
			continue
		}
		if len(plan.Pods) == 0 {
			p.addStep(current, &plan)
			return plan, nil
		}
		if len(p.Batches) == 0 {
			p.Now, p.Queued = len(plan.Pods), len(plan.Queued)
		}
		p.Batches = append(p.Batches, podNames(plan.Pods))
		if stage.LimitsUnavailable(current) {
			plan.Queued = nil // The next plan applies the limits again.
		}
		if plan.MaxUnavailable > 0 {
			for batch := range slices.Chunk(plan.Queued, plan.MaxUnavailable) {
				p.Batches = append(p.Batches, podNames(batch))
			}
		}
		for _, selected := range slices.Concat(plan.Pods, plan.Queued) {
			pod := byName[selected.PodReference]
			pod.Updated, pod.UpgradedInPlace, pod.UpgradedToVersion, pod.Consistent, pod.Ready, pod.Failed = true, true, true, true, true, false
			pod.UnavailableBefore, pod.Resizing, pod.ResizeRestarts, pod.RestartsNothing = false, false, false, false
		}
	}
}

// domainOf returns a function that maps a node to the domain of the node. If there is no limit of domains, or
// if the nodes cannot be read, domainOf returns nil.
func (p *Plan) domainOf(in *PlanInput, current *protocol.Stage) func(node string) string {
	if !stage.LimitsUnavailable(current) || current.Step.Domains == nil || in.Domains == nil {
		return nil
	}
	of, err := in.Domains(current.Step.Domains.TopologyKey)
	if err != nil {
		p.Notes, in.Domains = append(p.Notes, "the plan ignores the limit of domains, because the nodes cannot be read: "+err.Error()), nil
		return nil
	}
	return of
}

// converged sets the states of pods with an upgrade in progress to converged, and returns the pods by their
// references.
func converged(matched []rollout.Pod) map[protocol.PodReference]*rollout.Pod {
	byName := map[protocol.PodReference]*rollout.Pod{}
	for i := range matched {
		pod := &matched[i]
		byName[pod.Reference()] = pod
		if pod.Failed {
			continue
		}
		if pod.UnavailableByUpgrade() || pod.Waits() {
			pod.Consistent, pod.Ready, pod.Migrating, pod.Migrated = true, true, false, false
		}
		pod.Resizing, pod.ResizeRestarts, pod.NodeLost = false, false, false
	}
	return byName
}

func podNames(pods []protocol.SelectedPod) []string {
	all := make([]string, len(pods))
	for i := range pods {
		all[i] = pods[i].String()
	}
	return all
}

// addStaying adds the pods that are old after the last batch to Stay.
func (p *Plan) addStaying(in *PlanInput, matched []rollout.Pod, last *rollout.Plan) {
	known := in.revisions()
	for i := range matched {
		pod := &matched[i]
		if pod.Updated {
			continue
		}
		reason := "spec.updateStrategy: " + string(last.Phase)
		switch {
		case !pod.Upgradable:
			reason = known.whyNotInPlace(pod.Pod, &in.Set.Spec)
		case last.Phase == protocol.PhaseQuarantined:
			reason = "the content is quarantined (kubectl sidecarset retry " + in.Set.Name + ")"
		case last.Phase == protocol.PhasePartitionReached:
			reason = "kept by spec.updateStrategy.partition"
		case last.Counts.Remaining > 0 && last.MaxUnavailable == 0:
			reason = "maxUnavailable is " + p.Limits.MaxUnavailable + ", so that no ready pod may be upgraded"
		case last.Counts.Remaining > 0 && last.OpenSlots == 0:
			reason = "pods that cannot start use all slots (maxUnavailable " + p.Limits.MaxUnavailable + ")"
		case in.Set.Spec.UpdateStrategy.Selector != nil:
			reason = "not selected by spec.updateStrategy.selector"
		}
		p.Stay = append(p.Stay, StayingPod{pod.Reference().String(), reason})
	}
	slices.SortFunc(p.Stay, func(a, b StayingPod) int { return strings.Compare(a.Pod, b.Pod) })
}

func (p *Plan) upgraded() int {
	n := 0
	for _, batch := range p.Batches {
		n += len(batch)
	}
	return n
}

// shownBatches and shownPods limit the text. The wide format has no limits.
const (
	shownBatches = 10
	shownPods    = 5
)

// Text returns the plan as text: a summary, the batches in order, and the pods that keep their version, by
// reason.
func (p *Plan) Text(s Style) string {
	lines := []string{fmt.Sprintf("Plan of %s: %s", s.Paint.in(Strong, "sidecarset/"+p.Name), joinImages(p.Images))}
	for _, cause := range p.Rejected {
		lines = append(lines, s.Paint.in(Bad, "Rejected: ")+cause)
	}
	for _, note := range p.Notes {
		lines = append(lines, s.Paint.in(Busy, "Note: ")+note)
	}
	steps, more := " in "+rollout.Count(len(p.Batches), "step"), "more step"
	if p.Policy != "" { // With a policy, the text uses the word step only for a step of the policy.
		steps, more = "", "more line"
	}
	lines = append(lines, fmt.Sprintf("%d of %s%s, at most %d unavailable at once (maxUnavailable %s); %d have this version, %d stay old",
		p.upgraded(), rollout.Count(p.Counts.Matched, "pod"), steps, p.Limits.Slots, p.Limits.MaxUnavailable, p.Counts.Updated, len(p.Stay)))
	lines = append(append(lines, p.stepLines()...), p.firstBatch()...)
	if p.Estimate != nil {
		lines = append(lines, fmt.Sprintf("About %s at the pace of the last rollout: %s in %s", p.Estimate.Round(time.Second), rollout.Count(p.Pace.Pods, "pod"), p.Pace.Took.Round(time.Second)))
	} else if p.PaceUnknown != "" {
		lines = append(lines, s.Paint.in(Faint, "No estimate: "+p.PaceUnknown))
	}
	for i, batch := range p.Batches {
		if !s.Wide && i == shownBatches {
			lines = append(lines, fmt.Sprintf("  … %s (-o wide)", rollout.Count(len(p.Batches)-i, more)))
			break
		}
		lines = append(lines, fmt.Sprintf("%4d  %s", i+1, someOf(batch, s.Wide)))
	}
	if len(p.Stay) > 0 {
		lines = append(lines, "Stay old:")
	}
	return text(append(lines, p.stayingLines(s)...))
}

// firstBatch returns a line about the first batch of the run, or nil if there is no batch.
func (p *Plan) firstBatch() []string {
	if p.Now == 0 {
		return nil
	}
	line := "batch 1: " + rollout.Count(p.Now, "pod") + " now"
	if p.Queued > 0 {
		line += fmt.Sprintf(", up to %d more as pods become ready", p.Queued)
	}
	return []string{line}
}

// stayingLines returns lines about the pods that keep their version, grouped by reason.
func (p *Plan) stayingLines(s Style) []string {
	byReason := map[string][]string{}
	var reasons []string
	for _, pod := range p.Stay {
		if byReason[pod.Reason] == nil {
			reasons = append(reasons, pod.Reason)
		}
		byReason[pod.Reason] = append(byReason[pod.Reason], pod.Pod)
	}
	var lines []string
	for _, reason := range reasons {
		lines = append(lines, fmt.Sprintf("  %s: %s", rollout.Count(len(byReason[reason]), "pod"), reason), "    "+someOf(byReason[reason], s.Wide))
	}
	return lines
}

func someOf(pods []string, all bool) string {
	if all || len(pods) <= shownPods {
		return strings.Join(pods, ", ")
	}
	return fmt.Sprintf("%s, … %d more", strings.Join(pods[:shownPods], ", "), len(pods)-shownPods)
}
