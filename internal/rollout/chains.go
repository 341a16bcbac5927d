package rollout

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/policy"
)

// phaseChain names the phase of a plan.
func phaseChain() policy.Chain[*planner, protocol.Phase] {
	return policy.Chain[*planner, protocol.Phase]{
		{When: (*planner).updatesOff, Then: protocol.PhaseNotUpdate},
		{When: (*planner).pausedWithPodsLeft, Then: protocol.PhasePaused},
		{When: (*planner).hasPods, Then: protocol.PhaseProgressing},
		{When: (*planner).waitsForPods, Then: protocol.PhaseWaiting},
		{When: (*planner).partitionReached, Then: protocol.PhasePartitionReached},
		{When: (*planner).nothingLeft, Then: protocol.PhaseComplete},
	}
}

// updatesOff lets a hot upgrade that has begun finish its reset (SPEC §7.1).
func (p *planner) updatesOff() bool {
	return p.strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType && p.plan.Counts.Migrating == 0
}

func (p *planner) pausedWithPodsLeft() bool { return p.strategy.Paused && p.plan.Counts.Remaining > 0 }

func (p *planner) hasPods() bool { return len(p.plan.Pods) > 0 }

func (p *planner) waitsForPods() bool {
	return p.plan.Counts.Remaining+p.plan.Counts.Settling+p.plan.Counts.Migrating > 0
}

func (p *planner) partitionReached() bool { return p.keepsOld }

func (p *planner) nothingLeft() bool { return true }

// standing of a matched pod in a rollout.
type standing int

const (
	notSelected standing = iota
	alreadyUpdated
	notUpgradable
	waiting
	movable
)

// standingChain picks the candidates (SPEC §7.2): those waiting or movable. An
// update selector leaves all other pods alone.
func standingChain(updateSelector *metav1.LabelSelector) (policy.Chain[*Pod, standing], error) {
	chain := policy.Chain[*Pod, standing]{
		{When: (*Pod).holdsVersion, Then: alreadyUpdated},
		{When: (*Pod).differsInMoreThanImages, Then: notUpgradable},
		{When: (*Pod).waits, Then: waiting},
		{When: (*Pod).mayMove, Then: movable},
	}
	if updateSelector == nil {
		return chain, nil
	}
	selector, err := compile(updateSelector)
	if err != nil {
		return nil, err
	}
	unselected := func(pod *Pod) bool { return !selector.Matches(labels.Set(pod.Labels)) }
	return slices.Insert(chain, 0, policy.Rule[*Pod, standing]{When: unselected, Then: notSelected}), nil
}

// Selected reports whether the update selector, if there is one, selects a pod.
func Selected(updateSelector *metav1.LabelSelector, pod *corev1.Pod) (bool, error) {
	if updateSelector == nil {
		return true, nil
	}
	selector, err := compile(updateSelector)
	return err == nil && selector.Matches(labels.Set(pod.Labels)), err
}

func compile(updateSelector *metav1.LabelSelector) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(updateSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.updateStrategy.selector: %w", err)
	}
	return selector, nil
}

func (p *Pod) holdsVersion() bool { return p.Updated }

func (p *Pod) differsInMoreThanImages() bool { return !p.Upgradable }

func (p *Pod) waits() bool { return p.Waits() }

func (p *Pod) mayMove() bool { return true }

// turn is a candidate's turn to be selected, after those that go before it.
type turn struct {
	pod     *Pod
	plan    *Plan
	refused map[protocol.PodReference]bool
	// free slots are left, and reserve is how many pods the reserve may have.
	free, reserve int
}

// selection is what becomes of a candidate at its turn.
type selection int

const (
	skipPod selection = iota
	endSelection
	upgradeOutsideBudget
	upgradeInSlot
	putInReserve
)

// turnChain selects pods within the budget (SPEC §7.5): those that are not ready
// cost nothing, ready ones take a slot, and the next ones are the reserve.
func turnChain() policy.Chain[*turn, selection] {
	return policy.Chain[*turn, selection]{
		{When: (*turn).full, Then: endSelection},
		{When: (*turn).waits, Then: skipPod},
		{When: (*turn).refusedBehindOthers, Then: endSelection},
		{When: (*turn).notReady, Then: upgradeOutsideBudget},
		{When: (*turn).slotFree, Then: upgradeInSlot},
		{When: (*turn).reserveOpen, Then: putInReserve},
	}
}

func (t *turn) full() bool { return !t.batchOpen() && !t.reserveOpen() }

func (t *turn) batchOpen() bool { return len(t.plan.Pods) < MaxBatch }

func (t *turn) waits() bool { return t.pod.Waits() }

// refusedBehindOthers pods wait until no other pod can move (SPEC §7.8).
func (t *turn) refusedBehindOthers() bool {
	return t.refused[t.pod.Reference()] && len(t.plan.Pods) > 0 && !t.refused[t.plan.Pods[0].PodReference]
}

func (t *turn) notReady() bool { return !t.pod.Ready && t.batchOpen() }

func (t *turn) slotFree() bool { return t.free > 0 && t.batchOpen() }

func (t *turn) reserveOpen() bool { return len(t.plan.Reserve) < t.reserve }
