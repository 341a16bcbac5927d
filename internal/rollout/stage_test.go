package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

func step(upTo intstr.IntOrString) *protocol.Stage {
	return &protocol.Stage{Policy: "p", Steps: 2, Step: &protocol.Step{UpTo: upTo}}
}

func TestSpec11_2_StepsLimitThePlan(t *testing.T) {
	reached := step(intstr.FromInt32(1))
	reached.Reached = &noon
	done := &protocol.Stage{Done: true}
	migrating := updated
	migrating.Migrating = true
	two := ptr(intstr.FromInt32(2))
	for _, c := range []struct {
		name   string
		stage  *protocol.Stage
		pods   []podstate.State
		phase  protocol.Phase
		chosen []string
		queued int
	}{
		{"no stage", nil, []podstate.State{old, old, old, old}, protocol.PhaseProgressing, []string{"a", "b"}, 2},
		{"the step is stricter than maxUnavailable", step(intstr.FromInt32(1)), []podstate.State{old, old, old, old}, protocol.PhaseProgressing, []string{"a"}, 0},
		{"maxUnavailable is stricter than the step", step(intstr.FromInt32(3)), []podstate.State{old, old, old, old}, protocol.PhaseProgressing, []string{"a", "b"}, 1},
		{"pods of the step converge", step(intstr.FromInt32(1)), []podstate.State{restart, old, old}, protocol.PhaseWaiting, []string{}, 0},
		{"pods of the step migrate", step(intstr.FromInt32(1)), []podstate.State{migrating, old, old}, protocol.PhaseWaiting, []string{}, 0},
		{"reached", step(intstr.FromInt32(1)), []podstate.State{updated, old, old}, protocol.PhaseStepReached, []string{}, 0},
		{"reached although a pod was unavailable before", step(intstr.FromInt32(1)), []podstate.State{deadWhen, old, old}, protocol.PhaseStepReached, []string{}, 0},
		{"a recorded step stays reached when a pod becomes unready", reached, []podstate.State{restart, old, old}, protocol.PhaseStepReached, []string{}, 0},
		{"a recorded step stays reached when its pod is deleted", reached, []podstate.State{old, old}, protocol.PhaseStepReached, []string{}, 0},
		{"a rollout without remaining pods ends in any step", step(intstr.FromInt32(1)), []podstate.State{updated, updated}, protocol.PhaseComplete, []string{}, 0},
		{"done", done, []podstate.State{updated, old, old}, protocol.PhaseProgressing, []string{"b", "c"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := unavailable(*two)
			plan, err := NextInStage(set, matched(c.pods...), nil, c.stage)
			require.NoError(t, err)
			assert.Equal(t, c.phase, plan.Phase)
			assert.Equal(t, c.chosen, chosen(plan))
			assert.Len(t, plan.Queued, c.queued)
		})
	}
}

func TestSpec11_2_ARefillStaysWithinTheStep(t *testing.T) {
	set := unavailable(intstr.FromInt32(9))
	pods := matched(old, old, old, old, old)
	plan, err := NextInStage(set, pods, nil, step(intstr.FromInt32(3)))
	require.NoError(t, err)
	var left []protocol.SelectedPod
	for i := range pods {
		left = append(left, protocol.SelectedPod{PodReference: pods[i].Reference()})
	}
	assert.Len(t, plan.Refill(left, nil, 0).Now, 3)
	assert.Len(t, plan.Refill(left, nil, 2).Now, 1, "writes that the cache does not show count")
	assert.Empty(t, plan.Refill(left, nil, 4).Now)
}

func TestSpec11_2_ASmallerPartitionIsStricterThanAStep(t *testing.T) {
	set := unavailable(intstr.FromInt32(9))
	set.Spec.UpdateStrategy.Partition = ptr(intstr.FromInt32(8))
	plan, err := NextInStage(set, matched(old, old, old, old, old, old, old, old, old, old), nil, step(intstr.FromString("50%")))
	require.NoError(t, err)
	assert.Len(t, plan.Pods, 1, "half of the two pods that the partition leaves")
	assert.Equal(t, 2, plan.Counts.Remaining)
}

func TestSpec11_2_AnInvalidStepIsAnError(t *testing.T) {
	_, err := NextInStage(unavailable(intstr.FromInt32(1)), matched(old), nil, step(intstr.FromString("many")))
	require.ErrorContains(t, err, "RolloutPolicy p")
}

func TestSpec11_3_WhatAReachedStepWaitsFor(t *testing.T) {
	s := step(intstr.FromInt32(1))
	s.Step.Name, s.Step.Bake, s.Step.Approval, s.Reached = "canary", time.Minute, true, &noon
	for _, c := range []struct {
		now      time.Time
		approval *protocol.Approval
		phase    protocol.Phase
		message  string
	}{
		{noon, nil, protocol.PhaseBaking, "step 1 of 2 (canary) bakes until 2024-01-02T12:01:00Z"},
		{noon, &protocol.Approval{}, protocol.PhaseBaking, "step 1 of 2 (canary) bakes until 2024-01-02T12:01:00Z"},
		{noon.Add(time.Minute), nil, protocol.PhaseAwaitingApproval, "step 1 of 2 (canary) waits for approval"},
		{noon.Add(time.Minute), &protocol.Approval{}, protocol.PhaseProgressing, "step 1 of 2 (canary)"},
	} {
		s.Approval = c.approval
		phase, message := s.Wait(c.now)
		assert.Equal(t, c.phase, phase)
		assert.Equal(t, c.message, message)
	}
}

// The kubelet of pod a does not respond, so the earlier upgrade of pod a does not end.
func TestSpec7_8_APodThatWaitsDoesNotStopAStep(t *testing.T) {
	waiting := old
	waiting.Consistent = false
	pods := []Pod{newPod("a", waiting), newPod("b", old), newPod("c", old)}
	plan, err := NextInStage(unavailable(intstr.FromInt32(9)), pods, nil, step(intstr.FromInt32(1)))
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, chosen(plan))

	pods[1] = newPod("b", updated)
	plan, err = NextInStage(unavailable(intstr.FromInt32(9)), pods, nil, step(intstr.FromInt32(1)))
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseStepReached, plan.Phase)
}

// Two pods differ in more than images. In one of these pods, the new twin of an earlier version crashes. No pod
// can be upgraded in place, so the rollout must not wait for a hot upgrade.
func TestSpec7_7_AHotUpgradeToAnEarlierVersionKeepsNoRolloutOpen(t *testing.T) {
	crashing := old
	crashing.Migrating, crashing.Upgradable, crashing.Ready = true, false, false
	recreate := old
	recreate.Upgradable = false
	for _, stage := range []*protocol.Stage{nil, step(intstr.FromInt32(1))} {
		set := unavailable(intstr.FromInt32(9))
		plan, err := NextInStage(set, matched(crashing, updated, recreate), nil, stage)
		require.NoError(t, err)
		assert.Equal(t, protocol.PhaseComplete, plan.Phase)
		set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
		plan, err = NextInStage(set, matched(crashing, updated, recreate), nil, stage)
		require.NoError(t, err)
		assert.Equal(t, protocol.PhaseNotUpdate, plan.Phase)
		crashed := crashing
		crashed.Migrated = true
		plan, err = NextInStage(set, matched(crashed, updated, recreate), nil, stage)
		require.NoError(t, err)
		assert.Equal(t, protocol.PhaseWaiting, plan.Phase, "the standby twin can be reset")
	}
}

// The app of the pod crashed before its upgrade, so the pod never becomes ready, and its standby twin cannot be
// reset. The good revision is recorded at the end of the rollout.
func TestSpec7_7_AHotUpgradeOfACrashingAppKeepsNoRolloutOpen(t *testing.T) {
	dead := deadWhen
	dead.Migrating, dead.Upgradable = true, false
	set := unavailable(intstr.FromInt32(9))
	plan, err := NextInStage(set, matched(dead, updated), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseComplete, plan.Phase)
	dead.Migrated = true
	plan, err = NextInStage(set, matched(dead, updated), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseWaiting, plan.Phase, "the standby twin can be reset")
}

// The new twin of the pod cannot start, and the user sets the type NotUpdate.
func TestSpec7_7_NotUpdateDoesNotWaitForATwinThatCannotStart(t *testing.T) {
	migrating := updated
	migrating.Migrating, migrating.Ready, migrating.Failed = true, false, true
	set := unavailable(intstr.FromInt32(9))
	set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
	plan, err := NextInStage(set, matched(migrating, updated), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseNotUpdate, plan.Phase)
	migrating.Failed, migrating.Crashes = false, 1
	plan, err = NextInStage(set, matched(migrating, updated), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseNotUpdate, plan.Phase, "the new twin has crashed")
	migrating.Crashes = 0
	plan, err = NextInStage(set, matched(migrating, updated), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseWaiting, plan.Phase, "the new twin is starting")
	migrating.Failed, migrating.Migrated = true, true
	plan, err = NextInStage(set, matched(migrating, updated), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseWaiting, plan.Phase)
}

// Pod a is not upgradable, and its hot upgrade to an earlier version does not end.
func TestSpec11_2_AHotUpgradeToAnotherVersionDoesNotStopAStep(t *testing.T) {
	migrating := old
	migrating.Migrating, migrating.Upgradable, migrating.Ready = true, false, false
	pods := []Pod{newPod("a", migrating), newPod("b", updated), newPod("c", old)}
	plan, err := NextInStage(unavailable(intstr.FromInt32(9)), pods, nil, step(intstr.FromInt32(1)))
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseStepReached, plan.Phase)

	// The app of an upgraded pod was not ready before the upgrade.
	dead := deadWhen
	dead.Migrating, dead.Upgradable = true, false
	stuck := step(intstr.FromInt32(2))
	stuck.Step.ProgressDeadline = time.Minute
	plan, err = NextInStage(unavailable(intstr.FromInt32(9)), []Pod{newPod("a", dead), newPod("b", updated), newPod("c", old)}, nil, stuck)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseStepReached, plan.Phase)
	assert.False(t, ProgressDue(unavailable(intstr.FromInt32(9)), &plan, stuck))
	dead.Migrated = true
	plan, err = NextInStage(unavailable(intstr.FromInt32(9)), []Pod{newPod("a", dead), newPod("b", updated), newPod("c", old)}, nil, stuck)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseWaiting, plan.Phase, "the standby twin has to be emptied")

	set := unavailable(intstr.FromInt32(9))
	back := rollingBack(set)
	plan, err = NextInStage(set, []Pod{newPod("a", migrating, withHash(set.Name, "older")), newPod("b", updated)}, nil, back)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseQuarantined, plan.Phase)
}
