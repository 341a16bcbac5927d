package rollout

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/api/protocol"
)

// candidates returns the pods that the rollout upgrades: pods that are not updated, are upgradable, and match the
// update selector (SPEC §7.2). A candidate may have to wait for its earlier upgrade, or for a node that does not
// respond.
func (p *planner) candidates() ([]candidate, error) {
	priority, err := newPriority(p.strategy.PriorityStrategy)
	if err != nil {
		return nil, err
	}
	selector, err := compile(p.strategy.Selector)
	if err != nil {
		return nil, err
	}
	candidates := make([]candidate, 0, p.plan.Counts.Matched-p.plan.Counts.Updated)
	for i := range p.pods {
		pod := &p.pods[i]
		if selector != nil && !selector.Matches(labels.Set(pod.Labels)) || p.quarantine != nil && !p.rollsBack(pod) {
			continue
		}
		p.plan.addCondition(pod)
		switch {
		case pod.Updated:
		case !pod.Upgradable:
			p.plan.addNotUpgradable(pod)
		default:
			if pod.Waits() {
				p.waiting++
			}
			if pod.NodeLost {
				p.plan.addLost(pod)
			}
			candidates = append(candidates, newCandidate(pod, &priority))
		}
	}
	for _, references := range [...][]protocol.PodReference{p.plan.NotUpgradable, p.plan.FalseConditions, p.plan.TrueConditions} {
		slices.SortFunc(references, func(a, b protocol.PodReference) int { return strings.Compare(a.String(), b.String()) })
	}
	return candidates, nil
}

// Selected reports whether the update selector selects a pod. A nil selector selects every pod. Selected
// returns an error if the selector is invalid.
func Selected(updateSelector *metav1.LabelSelector, pod *corev1.Pod) (bool, error) {
	selector, err := compile(updateSelector)
	return err == nil && (selector == nil || selector.Matches(labels.Set(pod.Labels))), err
}

// compile compiles the update selector. The result is nil if updateSelector is nil.
func compile(updateSelector *metav1.LabelSelector) (labels.Selector, error) {
	if updateSelector == nil {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(updateSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.updateStrategy.selector: %w", err)
	}
	return selector, nil
}
