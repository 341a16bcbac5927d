package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Next plans the next step of a set's rollout. Refused pods come after all
// others. It does not change its arguments.
func Next(set *v1alpha1.SidecarSet, pods []Pod, refused map[protocol.PodReference]bool) (Plan, error) {
	p := planner{strategy: &set.Spec.UpdateStrategy, pods: pods, refused: refused}
	if err := p.run(); err != nil {
		return Plan{}, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	for i := range set.Spec.Containers {
		p.plan.Hot = p.plan.Hot || set.Spec.Containers[i].UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade
	}
	return p.plan, nil
}

// planner makes one plan.
type planner struct {
	strategy *v1alpha1.SidecarSetUpdateStrategy
	pods     []Pod
	refused  map[protocol.PodReference]bool
	plan     Plan
	// waiting candidates may not be upgraded yet.
	waiting int
	// keepsOld reports whether the partition keeps candidates from the upgrade.
	keepsOld bool
}

func (p *planner) run() error {
	p.count()
	candidates, err := p.candidates()
	if err != nil {
		return err
	}
	counts := &p.plan.Counts
	kept, err := partition(p.strategy, counts.Matched)
	if err != nil {
		return err
	}
	p.plan.Slots, err = maxUnavailable(p.strategy, counts.Matched)
	if err != nil {
		return err
	}
	p.plan.Free = max(p.plan.Slots-counts.Unavailable, 0)
	quota := max(counts.Matched-kept-counts.Updated, 0)
	p.keepsOld = len(candidates) > quota
	counts.Remaining = min(quota, len(candidates))
	p.plan.candidates = candidates
	if p.strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType || p.strategy.Paused {
		p.plan.FalseConditions, p.plan.TrueConditions = nil, nil
	} else {
		p.selectPods(p.ordered(candidates))
	}
	p.plan.Phase = phaseChain().Decide(p)
	p.plan.Message = p.plan.message()
	return nil
}

func (p *planner) count() {
	p.plan.Counts.Matched = len(p.pods)
	for i := range p.pods {
		p.plan.count(&p.pods[i])
	}
}

// candidates are the pods that the rollout may move: not updated, upgradable,
// and taken by the update selector (SPEC §7.2).
func (p *planner) candidates() ([]candidate, error) {
	priority, err := newPriority(p.strategy.PriorityStrategy)
	if err != nil {
		return nil, err
	}
	standings, err := standingChain(p.strategy.Selector)
	if err != nil {
		return nil, err
	}
	candidates := make([]candidate, 0, p.plan.Counts.Matched-p.plan.Counts.Updated)
	for i := range p.pods {
		pod := &p.pods[i]
		switch standings.Decide(pod) {
		case notSelected:
			continue
		case notUpgradable:
			p.plan.Counts.NotUpgradable++
			p.plan.NotUpgradable = append(p.plan.NotUpgradable, pod.Reference())
		case waiting:
			p.waiting++
			candidates = append(candidates, newCandidate(pod, &priority))
		case movable:
			candidates = append(candidates, newCandidate(pod, &priority))
		}
		p.plan.addCondition(pod)
	}
	for _, references := range [][]protocol.PodReference{p.plan.NotUpgradable, p.plan.FalseConditions, p.plan.TrueConditions} {
		slices.SortFunc(references, func(a, b protocol.PodReference) int { return strings.Compare(a.String(), b.String()) })
	}
	return candidates, nil
}

// ordered returns the candidates that may be selected now, in order.
func (p *planner) ordered(candidates []candidate) []candidate {
	quota := p.plan.Counts.Remaining
	if len(p.strategy.ScatterStrategy) == 0 && len(p.refused) == 0 {
		return first(candidates, min(quota, MaxBatch+MaxReserve+p.waiting))
	}
	sortCandidates(candidates)
	if len(p.strategy.ScatterStrategy) > 0 {
		candidates = scatter(p.strategy.ScatterStrategy, upgraded(p.pods), candidates)
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return compareBool(p.refused[a.Reference()], p.refused[b.Reference()])
	})
	return candidates[:min(quota, len(candidates))]
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

// selectPods gives each candidate its turn, in order.
func (p *planner) selectPods(candidates []candidate) {
	turns := turnChain()
	t := turn{plan: &p.plan, refused: p.refused, free: p.plan.Free, reserve: min(MaxReserve, reservePerSlot*p.plan.Slots)}
	for i := range candidates {
		t.pod = candidates[i].Pod
		switch turns.Decide(&t) {
		case endSelection:
			return
		case upgradeOutsideBudget:
			p.plan.Pods = append(p.plan.Pods, protocol.SelectedPod{PodReference: t.pod.Reference(), Unready: true})
		case upgradeInSlot:
			t.free--
			p.plan.Pods = append(p.plan.Pods, protocol.SelectedPod{PodReference: t.pod.Reference()})
		case putInReserve:
			p.plan.Reserve = append(p.plan.Reserve, protocol.SelectedPod{PodReference: t.pod.Reference()})
		}
	}
}
