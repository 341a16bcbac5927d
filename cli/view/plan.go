package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
)

// PlanInput is what a Plan is made from.
type PlanInput struct {
	// Set is the version to plan for, with defaults and hashes.
	Set *v1alpha1.SidecarSet
	// Stored is the set as it is; nil if it is new.
	Stored          *v1alpha1.SidecarSet
	Pods            []*corev1.Pod
	NamespaceLabels func(string) (map[string]string, error)
	// Revisions are the set's, sorted.
	Revisions []*appsv1.ControllerRevision
	// Refused says why admission would not take the set.
	Refused []string
	// Unknown are fields that no SidecarSet has.
	Unknown []string
	// Pace is that of the last rollout; nil if there is none, or PaceUnknown says why not.
	Pace        *Pace
	PaceUnknown string
	// New sets are not stored yet; Missing pods match and lack the set.
	New     bool
	Missing int
}

// Pace is how fast a rollout was.
type Pace struct {
	Pods int           `json:"pods"`
	Took time.Duration `json:"took"`
}

// Plan is what the rollout of a version would do to the pods as they are.
type Plan struct {
	Name    string          `json:"name"`
	Refused []string        `json:"refused,omitempty"`
	Notes   []string        `json:"notes,omitempty"`
	Images  []Image         `json:"images"`
	Counts  protocol.Counts `json:"counts"`
	Window  Window          `json:"window"`
	// Batches are what fits the window together. The worker goes on as each slot
	// becomes free, in this order.
	Batches [][]string `json:"batches,omitempty"`
	// Stay are the pods that keep their version, and why.
	Stay []Staying `json:"stay,omitempty"`
	// Estimate is nil if no pace is known.
	Estimate *time.Duration `json:"estimate,omitempty"`
	Pace     *Pace          `json:"pace,omitempty"`
	// PaceUnknown says why the pace of the last rollout could not be read.
	PaceUnknown string `json:"paceUnknown,omitempty"`
}

// Staying is a pod that keeps its version.
type Staying struct {
	Pod string `json:"pod"`
	Why string `json:"why"`
}

// NewPlan has the production planner plan again and again, each time as if what it chose
// had been upgraded and were ready.
func NewPlan(in PlanInput) (*Plan, error) {
	population, err := rollout.Population(in.Set, in.Pods, in.NamespaceLabels)
	if err != nil {
		return nil, err
	}
	first, err := rollout.Next(in.Set, population, nil)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		Name: in.Set.Name, Refused: in.Refused, Images: images(&in.Set.Spec), Counts: first.Counts, Window: windowOf(in.Set, &first),
		Notes: planNotes(in), PaceUnknown: in.PaceUnknown,
	}
	last, err := p.simulate(in.Set, population)
	if err != nil {
		return nil, err
	}
	if err := p.addStaying(in, population, last); err != nil {
		return nil, err
	}
	if moved := p.moved(); in.Pace != nil && in.Pace.Pods > 0 && moved > 0 {
		estimate := in.Pace.Took * time.Duration(moved) / time.Duration(in.Pace.Pods)
		p.Estimate, p.Pace = &estimate, in.Pace
	}
	return p, nil
}

func planNotes(in PlanInput) []string {
	var notes []string
	set := in.Set
	for _, field := range in.Unknown {
		notes = append(notes, field+": nothing here knows it; is it misspelt?")
	}
	if in.New {
		notes = append(notes, fmt.Sprintf("the set is new: pods get it when they are created; %s match now", plural(in.Missing, "pod")))
	}
	if set.Spec.UpdateStrategy.Paused {
		notes = append(notes, "spec.updateStrategy.paused holds this until it is false")
	}
	if status := set.Status.Rollout; status != nil && status.Pause != nil {
		notes = append(notes, "the run is held "+heldBy(&protocol.Pause{By: status.Pause.By, Reason: status.Pause.Reason}))
	}
	if set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType {
		notes = append(notes, "spec.updateStrategy.type is NotUpdate: no pod is upgraded")
	}
	if changed := changedInitImages(in.Stored, set); len(changed) > 0 {
		notes = append(notes, "new pods alone get the new image of what ends before they start: spec.initContainers"+fmt.Sprint(changed))
	}
	return notes
}

// changedInitImages names the init containers that end and have another image: nobody
// can run them again (SPEC §9.1).
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

// simulate returns the plan with which nothing more moves. It changes the states of the
// population.
func (p *Plan) simulate(set *v1alpha1.SidecarSet, population []rollout.Pod) (rollout.Plan, error) {
	running := set.DeepCopy()
	running.Spec.UpdateStrategy.Paused = false
	byName := map[protocol.PodReference]*rollout.Pod{}
	for i := range population {
		pod := &population[i]
		byName[pod.Reference()] = pod
		if !pod.Failed && (pod.UnavailableByUpgrade() || pod.Waits()) {
			// What is under way ends well.
			pod.Consistent, pod.Ready, pod.Migrating, pod.Migrated = true, true, false, false
		}
	}
	for {
		plan, err := rollout.Next(running, population, nil)
		if err != nil || len(plan.Pods) == 0 {
			return plan, err
		}
		p.Batches = append(p.Batches, podNames(plan.Pods))
		for reserve := plan.Queued; len(reserve) > 0 && plan.MaxUnavailable > 0; {
			n := min(plan.MaxUnavailable, len(reserve))
			p.Batches = append(p.Batches, podNames(reserve[:n]))
			reserve = reserve[n:]
		}
		for _, chosen := range slices.Concat(plan.Pods, plan.Queued) {
			pod := byName[chosen.PodReference]
			pod.Updated, pod.UpgradedInPlace, pod.UpgradedToVersion, pod.Consistent, pod.Ready, pod.Failed = true, true, true, true, true, false
			pod.UnavailableBefore = false
		}
	}
}

func podNames(pods []protocol.SelectedPod) []string {
	all := make([]string, len(pods))
	for i := range pods {
		all[i] = pods[i].String()
	}
	return all
}

// addStaying says of each pod that is left why it is.
func (p *Plan) addStaying(in PlanInput, population []rollout.Pod, last rollout.Plan) error {
	known := newHistory(in.Set, in.Revisions)
	for i := range population {
		pod := &population[i]
		if pod.Updated {
			continue
		}
		why := "spec.updateStrategy: " + string(last.Phase)
		switch {
		case !pod.Upgradable:
			entries, err := record.Hashes(pod.Annotations)
			if err != nil {
				return err
			}
			why = known.blame(entries[in.Set.Name], &in.Set.Spec)
		case last.Phase == protocol.PhasePartitionReached:
			why = "kept by spec.updateStrategy.partition"
		case last.Counts.Remaining > 0 && last.OpenSlots == 0:
			why = "no slot becomes free: maxUnavailable is " + p.Window.MaxUnavailable + ", and pods that cannot start take it"
		case in.Set.Spec.UpdateStrategy.Selector != nil:
			why = "not taken by spec.updateStrategy.selector"
		}
		p.Stay = append(p.Stay, Staying{pod.Reference().String(), why})
	}
	slices.SortFunc(p.Stay, func(a, b Staying) int { return strings.Compare(a.Pod, b.Pod) })
	return nil
}

// blame says which fields keep a pod from its upgrade in place.
func (h *history) blame(entry record.Entry, to *v1alpha1.SidecarSetSpec) string {
	const cannot = "cannot be upgraded in place"
	recorded := h.byName[h.held(entry)]
	if recorded == nil {
		return cannot + "; its revision is not kept, so the field is not known"
	}
	var from v1alpha1.SidecarSetSpec
	if err := revision.Restore(recorded.Data.Raw, &from); err != nil {
		return cannot + "; " + err.Error()
	}
	fields := Blame(&from, to)
	if len(fields) == 0 {
		return cannot + ": its hash without images differs"
	}
	return cannot + ": " + strings.Join(fields, ", ")
}

func (p *Plan) moved() int {
	n := 0
	for _, batch := range p.Batches {
		n += len(batch)
	}
	return n
}

// shownBatches and shownPods bound the text; wide shows all.
const (
	shownBatches = 10
	shownPods    = 5
)

// Write writes what would happen, the batches in order and the pods that stay.
func (p *Plan) Write(out io.Writer, t Text) error {
	lines := []string{fmt.Sprintf("Plan of %s: %s", t.Paint.in(Strong, "sidecarset/"+p.Name), joinImages(p.Images))}
	for _, refusal := range p.Refused {
		lines = append(lines, t.Paint.in(Bad, "Refused: ")+refusal)
	}
	for _, note := range p.Notes {
		lines = append(lines, t.Paint.in(Busy, "Note: ")+note)
	}
	lines = append(lines, fmt.Sprintf("%d of %s in %s, at most %d unavailable at once (maxUnavailable %s); %d hold this version, %d stay old",
		p.moved(), plural(p.Counts.Matched, "pod"), countBatches(len(p.Batches)), p.Window.Slots, p.Window.MaxUnavailable, p.Counts.Updated, len(p.Stay)))
	if p.Estimate != nil {
		lines = append(lines, fmt.Sprintf("About %s at the pace of the last rollout: %s in %s", p.Estimate.Round(time.Second), plural(p.Pace.Pods, "pod"), p.Pace.Took.Round(time.Second)))
	} else if p.PaceUnknown != "" {
		lines = append(lines, t.Paint.in(Faint, "No estimate: "+p.PaceUnknown))
	}
	for i, batch := range p.Batches {
		if !t.Wide && i == shownBatches {
			lines = append(lines, fmt.Sprintf("  … %s more (-o wide)", countBatches(len(p.Batches)-i)))
			break
		}
		lines = append(lines, fmt.Sprintf("%4d  %s", i+1, someOf(batch, t.Wide)))
	}
	if len(p.Stay) > 0 {
		lines = append(lines, "Stay old:")
	}
	lines = append(lines, p.stayingLines(t)...)
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// stayingLines groups the pods by reason.
func (p *Plan) stayingLines(t Text) []string {
	byReason := map[string][]string{}
	var reasons []string
	for _, pod := range p.Stay {
		if byReason[pod.Why] == nil {
			reasons = append(reasons, pod.Why)
		}
		byReason[pod.Why] = append(byReason[pod.Why], pod.Pod)
	}
	var lines []string
	for _, why := range reasons {
		lines = append(lines, fmt.Sprintf("  %s: %s", plural(len(byReason[why]), "pod"), why), "    "+someOf(byReason[why], t.Wide))
	}
	return lines
}

func someOf(pods []string, all bool) string {
	if all || len(pods) <= shownPods {
		return strings.Join(pods, ", ")
	}
	return fmt.Sprintf("%s, … %d more", strings.Join(pods[:shownPods], ", "), len(pods)-shownPods)
}
