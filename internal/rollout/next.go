// Package rollout plans which pods of a SidecarSet are upgraded next, in which order and within which limits
// (SPEC §7). A plan depends only on the arguments of Next, so the same population gives the same plan.
package rollout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

// Next plans the next batch of a rollout that no RolloutPolicy limits. Rejected pods are upgraded after all
// other pods. Next does not change its arguments, and returns an error if the update strategy is invalid.
func Next(set *v1alpha1.SidecarSet, pods []Pod, rejected map[protocol.PodReference]bool) (Plan, error) {
	return NextInStage(set, pods, rejected, nil)
}

// NextInStage is Next for a rollout with a RolloutPolicy. The step of current limits the pods that are
// upgraded (SPEC §11). If current is nil, no step limits the plan. The limits that depend on the cluster do
// not apply. During a rollback, set is the result of stage.Target.
func NextInStage(set *v1alpha1.SidecarSet, pods []Pod, rejected map[protocol.PodReference]bool, current *protocol.Stage) (Plan, error) {
	return NextInCluster(set, pods, rejected, current, Cluster{})
}

// NextInCluster is NextInStage with the limits that depend on the cluster, such as PodDisruptionBudgets.
func NextInCluster(set *v1alpha1.SidecarSet, pods []Pod, rejected map[protocol.PodReference]bool, current *protocol.Stage, cluster Cluster) (Plan, error) {
	p := planner{set: set.Name, strategy: &set.Spec.UpdateStrategy, pods: pods, rejected: rejected, stage: current, quarantine: stage.RollsBack(current, set.Generation)}
	p.plan.scope = newScope(current, pods, cluster)
	if err := p.run(); err != nil {
		return Plan{}, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	for i := range set.Spec.Containers {
		p.plan.Hot = p.plan.Hot || set.Spec.Containers[i].UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade
	}
	return p.plan, nil
}

// planner computes one plan.
type planner struct {
	set      string
	strategy *v1alpha1.SidecarSetUpdateStrategy
	pods     []Pod
	rejected map[protocol.PodReference]bool
	stage    *protocol.Stage
	// quarantine is set during a rollback.
	quarantine *protocol.Quarantine
	plan       Plan
	// waiting is the number of candidates that cannot be upgraded yet.
	waiting int
	// keepsOld is set if the partition keeps candidates at the old version, or is at least as large as the number
	// of pods that are not upgradable.
	keepsOld bool
}

func (p *planner) run() error {
	p.plan.Counts.Matched = len(p.pods)
	for i := range p.pods {
		p.plan.count(&p.pods[i])
	}
	candidates, err := p.candidates()
	if err != nil {
		return err
	}
	counts := &p.plan.Counts
	kept, err := Partition(p.strategy, counts.Matched)
	if err != nil {
		return err
	}
	p.plan.MaxUnavailable, err = MaxUnavailable(p.strategy, counts.Matched)
	if err != nil {
		return err
	}
	p.plan.OpenSlots = max(p.plan.MaxUnavailable-counts.Unavailable, 0)
	quota := max(counts.Matched-kept-counts.Updated, 0)
	p.keepsOld = len(candidates) > quota || counts.NotUpgradable > 0 && counts.NotUpgradable <= kept
	counts.Remaining = min(quota, len(candidates))
	if p.plan.allowed, err = stage.Allowed(p.stage, counts.Updated, counts.Remaining); err != nil {
		return err
	}
	if p.plan.Example == "" && counts.Remaining > 0 && p.plan.OpenSlots == 0 {
		p.plan.Example = p.plan.slotExample
	}
	p.plan.StepFull = counts.Remaining > 0 && p.plan.allowed == 0
	p.plan.candidates = candidates
	if p.strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType || p.strategy.Paused {
		p.plan.FalseConditions, p.plan.TrueConditions = nil, nil
	} else {
		p.selectPods(p.ordered(candidates))
	}
	p.plan.Phase = p.phase()
	p.plan.Message = p.plan.message()
	if p.quarantine != nil {
		p.rollback()
	}
	return nil
}

// phase returns the phase of the plan. With NotUpdate, the worker still resets the standby twin of a hot
// upgrade that has begun (SPEC §7.1).
func (p *planner) phase() protocol.Phase {
	counts := &p.plan.Counts
	switch {
	case p.strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType && !p.migrates():
		return protocol.PhaseNotUpdate
	case p.strategy.Paused && counts.Remaining > 0:
		return protocol.PhasePaused
	case len(p.plan.Pods) > 0:
		return protocol.PhaseProgressing
	case p.stepReached():
		return protocol.PhaseStepReached
	case counts.Remaining+counts.Converging > 0, p.migrates():
		return protocol.PhaseWaiting
	case p.keepsOld:
		return protocol.PhasePartitionReached
	}
	return protocol.PhaseComplete
}

// stepReached reports whether all pods of the current step are updated and ready, and further steps have pods
// to upgrade (SPEC §11.2). A step that the run has recorded as reached stays reached, even if a pod becomes
// unready.
func (p *planner) stepReached() bool {
	counts := &p.plan.Counts
	if !p.stage.Limits() || counts.Remaining == 0 {
		return false
	}
	return p.stage.Reached != nil || p.plan.allowed == 0 && counts.Converging == 0 && !p.migratesToVersion()
}

// migrates reports whether the rollout waits for a hot upgrade. A pod in a hot upgrade to an earlier version may
// never migrate, so this pod counts only if its standby twin can be reset. A rollback waits only for hot upgrades
// to the version of the rollback (SPEC 7.7.6).
func (p *planner) migrates() bool {
	return p.migratesToVersion() || p.quarantine == nil && p.plan.Counts.Migrated > 0
}

// migratesToVersion reports whether a pod is in a hot upgrade to the version. A pod that was unavailable before
// its upgrade may never migrate, so such a pod counts only if its standby twin can be reset. With NotUpdate, the
// same rule applies to a pod whose new twin cannot start or crashes (SPEC 7.7.6).
func (p *planner) migratesToVersion() bool {
	ends := p.strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType
	return p.plan.Counts.Migrating > 0 && slices.ContainsFunc(p.pods, func(pod Pod) bool {
		stuck := pod.UnavailableBefore || ends && (pod.Failed || pod.Crashes > 0)
		return pod.Migrating && pod.Updated && (pod.Migrated || !stuck)
	})
}

// ordered returns the candidates within the partition and the current step, in order.
func (p *planner) ordered(candidates []candidate) []candidate {
	quota := p.plan.allowed
	if p.stage.Limits() {
		// A pod that cannot be upgraded yet must not prevent the rollout from reaching the step.
		quota = min(quota+p.waiting, p.plan.Counts.Remaining)
	}
	// With a priority, a pod that needs no slot can follow any number of pods that need slots, so the whole list
	// must be sorted.
	if len(p.strategy.ScatterStrategy) == 0 && p.strategy.PriorityStrategy == nil && len(p.rejected) == 0 && p.plan.scope == nil {
		return first(candidates, min(quota, MaxBatch+MaxQueued+p.waiting))
	}
	sortCandidates(candidates)
	scattered := len(p.strategy.ScatterStrategy) > 0
	if scattered {
		candidates = scatter(p.strategy.ScatterStrategy, upgraded(p.pods), candidates)
	}
	domains, of := p.plan.scope.domainOrder(candidates)
	moved := scattered || domains != nil
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		// Without scatter and domains, the candidates of each priority are already sorted by NodeLost.
		order := cmp.Or(compareBool(moved && a.NodeLost, moved && b.NodeLost), compareBool(p.rejected[a.Reference()], p.rejected[b.Reference()]), compareBool(a.InBackoff, b.InBackoff))
		if order == 0 && domains != nil {
			return cmp.Compare(domains[of(a.Spec.NodeName)], domains[of(b.Spec.NodeName)])
		}
		return order
	})
	if p.plan.scope != nil {
		// A pod for which the policy has no slot must not prevent the upgrade of another pod.
		return candidates
	}
	return candidates[:min(quota, len(candidates))]
}

// upgraded returns the pods that this rollout has upgraded.
func upgraded(pods []Pod) []candidate {
	var done []candidate
	for i := range pods {
		if pods[i].Updated && pods[i].UpgradedToVersion {
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

// selectPods selects candidates, in order, within maxUnavailable (SPEC §7.5). Only a pod for which NeedsSlot
// is true takes a slot. If no slot is open, selectPods queues the next pods. A pod for which the limits of
// the policy have no slot is queued after all other pods, because such a pod may get no slot during the
// batch.
func (p *planner) selectPods(candidates []candidate) {
	maxQueued := min(MaxQueued, queuedPerSlot*p.plan.MaxUnavailable+len(p.rejected))
	for _, pod := range p.selectWithSlots(candidates, maxQueued) {
		if len(p.plan.Queued) < maxQueued {
			p.plan.Queued = append(p.plan.Queued, pod)
		}
	}
}

// selectWithSlots selects pods, and returns the pods for which the limits of the policy have no slot. A
// queued pod also takes slots of the policy, so that the queue contains pods of as many owners as possible.
func (p *planner) selectWithSlots(candidates []candidate, maxQueued int) (later []protocol.SelectedPod) {
	plan, slots := &p.plan, p.plan.OpenSlots
	limits, waiting := plan.scope.limits(nil), 0
	for i := range candidates {
		pod := candidates[i].Pod
		selected := protocol.SelectedPod{PodReference: pod.Reference()}
		batchFull, queueFull := len(plan.Pods) >= MaxBatch, len(plan.Queued) >= maxQueued
		chosen := len(plan.Pods) + len(plan.Queued)
		switch {
		case batchFull && queueFull, chosen >= plan.allowed, chosen+waiting >= plan.Counts.Remaining:
			return later
		case pod.Waits():
			waiting++ // A waiting pod keeps its place in the partition (SPEC §7.4.5).
			continue
		case pod.InBackoff:
			continue
		case p.rejected[selected.PodReference] && len(plan.Pods) > 0 && !p.rejected[plan.Pods[0].PodReference]:
			// Rejected pods are upgraded only if no other pod can be upgraded (SPEC §7.8).
			return later
		}
		selected.Unready = !pod.NeedsSlot() && !batchFull
		full := limits.full(pod)
		switch {
		case full != nil:
			selected.Unready = false
			later = append(later, selected)
			plan.block(pod, full, slots)
		case selected.Unready:
			limits.take(pod)
			plan.Pods = append(plan.Pods, selected)
		case slots > 0 && !batchFull:
			slots--
			limits.take(pod)
			plan.Pods = append(plan.Pods, selected)
		case !queueFull:
			limits.take(pod)
			plan.Queued = append(plan.Queued, selected)
		}
	}
	return later
}
