package rollout

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// MaxBatch bounds the pods of one plan that are upgraded at once, and MaxReserve
// those that follow: together the size of one payload. The reserve is also
// bounded by the window, reservePerSlot times: more would only be planned again.
const (
	MaxBatch       = 200
	MaxReserve     = 800
	reservePerSlot = 10
)

// Plan is what to do next about a population, and how far it is.
type Plan struct {
	Phase   protocol.Phase
	Message string
	Counts  protocol.Counts
	// Pods to upgrade now, in order. They fit the budget together.
	Pods []protocol.SelectedPod
	// Reserve follows Pods, in order, as slots become free.
	Reserve []protocol.SelectedPod
	// Slots is how many ready pods may be unavailable at once, and Free how
	// many more could become so now.
	Slots, Free int
	// Example is a pod that the rollout waits for, namespace/name.
	Example string
	// NotUpgradable pods differ from the version in more than images. Sorted.
	NotUpgradable []protocol.PodReference
	// FalseConditions are pods whose condition SidecarSetUpgradable lacks the
	// entry false for the set; TrueConditions those that lack the entry true.
	// Nobody waits for the latter.
	FalseConditions, TrueConditions []protocol.PodReference
	// Hot sets have standby twins to reset after an upgrade.
	Hot bool

	// candidates are all that the rollout may move, in no order.
	candidates []candidate
	// waiting candidates may not be touched yet.
	waiting int
}

// Next plans the next step of a set's rollout. Refused pods come after all
// others. It does not change its arguments.
func Next(set *v1alpha1.SidecarSet, pods []Pod, refused map[protocol.PodReference]bool) (Plan, error) {
	plan, err := next(&set.Spec.UpdateStrategy, pods, refused)
	if err != nil {
		return Plan{}, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	for i := range set.Spec.Containers {
		plan.Hot = plan.Hot || set.Spec.Containers[i].UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade
	}
	return plan, nil
}

func next(strategy *v1alpha1.SidecarSetUpdateStrategy, pods []Pod, refused map[protocol.PodReference]bool) (Plan, error) {
	var plan Plan
	candidates, err := plan.survey(strategy, pods)
	if err != nil {
		return Plan{}, err
	}
	kept, err := partition(strategy, plan.Counts.Matched)
	if err != nil {
		return Plan{}, err
	}
	plan.Slots, err = maxUnavailable(strategy, plan.Counts.Matched)
	if err != nil {
		return Plan{}, err
	}
	plan.Free = max(plan.Slots-plan.Counts.Unavailable, 0)
	room := max(plan.Counts.Matched-kept-plan.Counts.Updated, 0)
	reached := len(candidates) > room
	plan.Counts.Remaining = min(room, len(candidates))
	plan.candidates = candidates
	if strategy.Type != v1alpha1.NotUpdateSidecarSetStrategyType && !strategy.Paused {
		plan.choose(plan.ordered(strategy, pods, candidates, refused), refused)
	} else {
		plan.FalseConditions, plan.TrueConditions = nil, nil
	}
	plan.conclude(strategy, reached)
	return plan, nil
}

// ordered returns the candidates that may be chosen now, in order.
func (p *Plan) ordered(strategy *v1alpha1.SidecarSetUpdateStrategy, pods []Pod, candidates []candidate, refused map[protocol.PodReference]bool) []candidate {
	room := p.Counts.Remaining
	if len(strategy.ScatterStrategy) == 0 && len(refused) == 0 {
		return first(candidates, min(room, MaxBatch+MaxReserve+p.waiting))
	}
	sortCandidates(candidates)
	if len(strategy.ScatterStrategy) > 0 {
		candidates = scatter(strategy.ScatterStrategy, upgraded(pods), candidates)
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return compareBool(refused[a.Reference()], refused[b.Reference()])
	})
	return candidates[:min(room, len(candidates))]
}

// upgraded lists the pods that this rollout has moved.
func upgraded(pods []Pod) []candidate {
	var done []candidate
	for i := range pods {
		if pods[i].Updated && pods[i].Moved {
			done = append(done, candidate{Pod: &pods[i]})
		}
	}
	return done
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// survey counts the pods and picks the candidates: not updated, upgradable,
// and chosen by the canary selector (SPEC §7.2).
func (p *Plan) survey(strategy *v1alpha1.SidecarSetUpdateStrategy, pods []Pod) ([]candidate, error) {
	priority, err := newPriority(strategy.PriorityStrategy)
	if err != nil {
		return nil, err
	}
	canary, err := newCanary(strategy.Selector)
	if err != nil {
		return nil, err
	}
	p.Counts.Matched = len(pods)
	for i := range pods {
		p.count(&pods[i])
	}
	candidates := make([]candidate, 0, p.Counts.Matched-p.Counts.Updated)
	for i := range pods {
		if pod := &pods[i]; canary(pod) && p.classify(pod) {
			candidates = append(candidates, newCandidate(pod, &priority))
		}
	}
	for _, references := range [][]protocol.PodReference{p.NotUpgradable, p.FalseConditions, p.TrueConditions} {
		slices.SortFunc(references, func(a, b protocol.PodReference) int { return strings.Compare(a.String(), b.String()) })
	}
	return candidates, nil
}

// newCanary tells which pods an update selector takes; without one, all.
func newCanary(selector *metav1.LabelSelector) (func(*Pod) bool, error) {
	if selector == nil {
		return func(*Pod) bool { return true }, nil
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("spec.updateStrategy.selector: %w", err)
	}
	return func(pod *Pod) bool { return compiled.Matches(labels.Set(pod.Labels)) }, nil
}

// classify notes what there is to say of a selected pod, and reports whether it
// is a candidate.
func (p *Plan) classify(pod *Pod) bool {
	switch {
	case pod.FalseConditionDue && len(p.FalseConditions) < MaxBatch:
		p.FalseConditions = append(p.FalseConditions, pod.Reference())
	case pod.TrueConditionDue && len(p.TrueConditions) < MaxBatch:
		p.TrueConditions = append(p.TrueConditions, pod.Reference())
	}
	if pod.Updated {
		return false
	}
	if !pod.Upgradable {
		p.Counts.NotUpgradable++
		p.NotUpgradable = append(p.NotUpgradable, pod.Reference())
		return false
	}
	if pod.Waits() {
		p.waiting++
	}
	return true
}

func (p *Plan) count(pod *Pod) {
	if pod.Ready {
		p.Counts.Ready++
	}
	if pod.Updated {
		p.Counts.Updated++
		if pod.Settled() {
			p.Counts.UpdatedReady++
		}
	}
	if pod.Migrating {
		p.Counts.Migrating++
	}
	if pod.Migrated {
		p.Counts.Migrated++
	}
	if !pod.InFlight() {
		return
	}
	p.Counts.Unavailable++
	if pod.Updated && pod.Moved {
		p.Counts.Settling++
		if name := pod.Reference().String(); p.Example == "" || name < p.Example {
			p.Example = name
		}
	}
}

// choose takes candidates in order while they fit the budget; those after them
// are the reserve. One that is not ready costs nothing (SPEC §7.5). Refused
// pods wait until nobody else can move.
func (p *Plan) choose(candidates []candidate, refused map[protocol.PodReference]bool) {
	free, reserve := p.Free, min(MaxReserve, reservePerSlot*p.Slots)
	for i := range candidates {
		pod := candidates[i].Pod
		switch {
		case len(p.Pods) == MaxBatch:
			return
		case pod.Waits():
		case refused[pod.Reference()] && len(p.Pods) > 0 && !refused[p.Pods[0].PodReference]:
			return
		case !pod.Ready:
			p.Pods = append(p.Pods, protocol.SelectedPod{PodReference: pod.Reference(), Unready: true})
		case free > 0:
			free--
			p.Pods = append(p.Pods, protocol.SelectedPod{PodReference: pod.Reference()})
		case len(p.Reserve) < reserve:
			p.Reserve = append(p.Reserve, protocol.SelectedPod{PodReference: pod.Reference()})
		}
	}
}

// conclude names the phase and says it in words.
func (p *Plan) conclude(strategy *v1alpha1.SidecarSetUpdateStrategy, reached bool) {
	switch {
	case strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType && p.Counts.Migrating == 0:
		p.Phase = protocol.PhaseNotUpdate
	case strategy.Paused && p.Counts.Remaining > 0:
		p.Phase = protocol.PhasePaused
	case len(p.Pods) > 0:
		p.Phase = protocol.PhaseProgressing
	case p.Counts.Remaining+p.Counts.Settling+p.Counts.Migrating > 0:
		p.Phase = protocol.PhaseWaiting
	case reached:
		p.Phase = protocol.PhasePartitionReached
	default:
		p.Phase = protocol.PhaseComplete
	}
	p.Message = fmt.Sprintf("%d of %d pods updated, %d of them ready; %d to go, %d unavailable of %d allowed",
		p.Counts.Updated, p.Counts.Matched, p.Counts.UpdatedReady, p.Counts.Remaining, p.Counts.Unavailable, p.Slots)
	if p.Counts.NotUpgradable > 0 {
		p.Message += fmt.Sprintf("; %d not upgradable in place, such as %s", p.Counts.NotUpgradable, p.NotUpgradable[0])
	}
	if p.Phase == protocol.PhaseWaiting && p.Example != "" {
		p.Message += "; waiting for pods such as " + p.Example
	}
}
