package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

const (
	opened     = enums.WORKFLOW_EXECUTION_STATUS_RUNNING
	completed  = enums.WORKFLOW_EXECUTION_STATUS_COMPLETED
	terminated = enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
)

func TestHoldsAreClearedByRunsThatShowSoAlone(t *testing.T) {
	ann, nobody := &v1alpha1.RolloutHold{Who: "ann"}, &v1alpha1.RolloutHold{}
	memo := &protocol.Hold{Who: "ann"}
	for _, c := range []struct {
		name   string
		before *v1alpha1.RolloutHold
		paused bool
		run    run
		want   *v1alpha1.RolloutHold
		known  bool
	}{
		{"held", nil, false, run{status: opened, generation: generation, hold: memo, phase: protocol.PhasePaused}, ann, true},
		{"resumed", ann, false, run{status: opened, generation: generation, phase: protocol.PhaseProgressing}, nil, true},
		{"ended by itself", ann, false, run{status: completed, generation: generation, phase: protocol.PhaseComplete}, nil, true},
		{"ended by somebody", ann, false, run{status: terminated, generation: generation, phase: protocol.PhaseProgressing}, nil, false},
		{"ended by somebody while held", nil, false, run{status: terminated, generation: generation, hold: memo}, ann, true},
		{"gone", ann, false, run{}, nil, false},
		{"of a restored backup", ann, false, run{status: opened, generation: generation - 1, phase: protocol.PhaseProgressing}, nil, false},
		{"ended in a restored backup", ann, false, run{status: completed, generation: generation - 1, phase: protocol.PhaseComplete}, nil, false},
		{"of an earlier version", nil, false, run{status: opened, generation: generation, phase: protocol.PhasePaused}, nobody, true},
		{"of an earlier version, known who", ann, false, run{status: opened, generation: generation, phase: protocol.PhasePaused}, ann, true},
		{"paused by the set", nil, true, run{status: opened, generation: generation, phase: protocol.PhasePaused}, nil, false},
		{"resumed while paused by the set", ann, true, run{status: opened, generation: generation, phase: protocol.PhasePaused}, nil, true},
		{"of an earlier version, paused by the set too", nobody, true, run{status: opened, generation: generation, phase: protocol.PhasePaused}, nil, false},
	} {
		set := setAt(generation)
		set.Spec.UpdateStrategy.Paused = c.paused
		set.Status.Rollout.Hold = c.before
		got, known := holdOf(set, &c.run)
		assert.Equal(t, c.known, known, c.name)
		assert.Equal(t, c.want, got, c.name)
	}
}

// A generation begins with what the run before said last (SPEC §8.2).
func TestTheLastRunsHoldIsTakenOver(t *testing.T) {
	ann, memo := &v1alpha1.RolloutHold{Who: "ann"}, &protocol.Hold{Who: "ann"}
	for _, c := range []struct {
		name  string
		run   run
		want  *v1alpha1.RolloutHold
		known bool
	}{
		{"held", run{status: opened, generation: generation, hold: memo, phase: protocol.PhasePaused}, ann, true},
		{"resumed", run{status: opened, generation: generation, phase: protocol.PhaseProgressing}, nil, true},
		{"its set was paused", run{status: opened, generation: generation, phase: protocol.PhasePaused}, nil, false},
		{"resumed while its set was paused", run{status: opened, generation: generation, phase: protocol.PhasePaused, resumed: memo}, nil, true},
		{"handed over before status was written", run{status: completed, generation: generation + 1, phase: protocol.PhaseComplete}, nil, true},
		{"the one in between", run{status: completed, generation: generation + 2, phase: protocol.PhaseComplete}, nil, true},
		{"of no generation that there was", run{status: completed, generation: generation + 3, phase: protocol.PhaseComplete}, nil, false},
		{"of a restored backup", run{status: opened, generation: generation - 1, phase: protocol.PhaseProgressing}, nil, false},
		{"gone", run{}, nil, false},
	} {
		set := setAt(generation)
		set.Generation = generation + 2
		set.Status.Rollout.Hold = ann
		got, known := lastHold(set, &c.run)
		assert.Equal(t, c.known, known, c.name)
		assert.Equal(t, c.want, got, c.name)
	}
}

func TestARunWhoseHoldCannotBeReadIsReadOtherwise(t *testing.T) {
	plain := converter.GetDefaultDataConverter()
	attribute, err := plain.ToPayload(generation)
	require.NoError(t, err)
	info := &workflow.WorkflowExecutionInfo{
		Status:           opened,
		SearchAttributes: &common.SearchAttributes{IndexedFields: map[string]*common.Payload{protocol.GenerationAttribute: attribute}},
		Memo: &common.Memo{Fields: map[string]*common.Payload{
			protocol.HoldMemo: {Metadata: map[string][]byte{converter.MetadataEncoding: []byte("binary/encrypted")}, Data: []byte("sealed")}}},
	}
	found, err := readRun(plain, info)
	require.NoError(t, err)
	require.ErrorContains(t, found.unreadable, "memo hold: ")
	assert.True(t, found.open())
	assert.Equal(t, int64(generation), found.generation)

	info.Memo.Fields = map[string]*common.Payload{protocol.ResumeMemo: info.Memo.Fields[protocol.HoldMemo]}
	found, err = readRun(plain, info)
	require.NoError(t, err)
	require.NoError(t, found.unreadable, "who resumed a run that goes on is not needed")
	assert.Nil(t, found.resumed)
}

func TestOnlyRunsThatWaitForASignalAreWoken(t *testing.T) {
	sleeping := run{status: opened, phase: protocol.PhaseWaiting, events: 9}
	assert.True(t, sleeping.waitsForSignal())
	sleeping.activities = pendingOf(protocol.ResetBatchActivity)
	assert.True(t, sleeping.waitsForSignal(), "resets free slots for others")
	for name, r := range map[string]run{
		"at work":          {status: opened, phase: protocol.PhaseProgressing},
		"held":             {status: opened, phase: protocol.PhasePaused},
		"ended":            {status: completed, phase: protocol.PhaseWaiting},
		"about to plan":    {status: opened, phase: protocol.PhaseWaiting, events: 9, task: &workflow.PendingWorkflowTaskInfo{}},
		"with a batch":     {status: opened, phase: protocol.PhaseWaiting, events: 9, activities: pendingOf(protocol.UpgradeBatchActivity)},
		"about to choose":  {status: opened, phase: protocol.PhaseWaiting, events: 9, activities: pendingOf(protocol.AwaitMigrationActivity, protocol.NextBatchActivity)},
		"continued as new": {status: opened, phase: protocol.PhaseWaiting, events: 1},
		"gone altogether":  {phase: protocol.PhaseWaiting},
	} {
		assert.False(t, r.waitsForSignal(), name)
	}
}

func pendingOf(activities ...string) (infos []*workflow.PendingActivityInfo) {
	for _, name := range activities {
		infos = append(infos, &workflow.PendingActivityInfo{ActivityType: &common.ActivityType{Name: name}})
	}
	return infos
}

func TestRunsAreWokenForWhatTheyWouldDo(t *testing.T) {
	ann := &protocol.Hold{Who: "ann"}
	for _, c := range []struct {
		name           string
		pods, migrated int
		hold           *protocol.Hold
		activities     []*workflow.PendingActivityInfo
		want           bool
	}{
		{"pods to upgrade", 1, 0, nil, nil, true},
		{"pods to upgrade beside resets", 1, 2, nil, pendingOf(protocol.ResetBatchActivity), true},
		{"pods to upgrade, held", 1, 0, ann, nil, false},
		{"twins to reset", 0, 2, nil, nil, true},
		{"twins to reset, held", 0, 2, ann, nil, true},
		{"twins that are being reset", 0, 2, nil, pendingOf(protocol.ResetBatchActivity), false},
		{"twins that are looked at", 0, 2, nil, pendingOf(protocol.AwaitMigrationActivity), false},
		{"nothing", 0, 0, nil, nil, false},
	} {
		seen := &observation{plan: rollout.Plan{Phase: protocol.PhaseWaiting, Pods: make([]protocol.SelectedPod, c.pods), Counts: protocol.Counts{Migrating: 3, Migrated: c.migrated}}}
		found := run{hold: c.hold, activities: c.activities}
		assert.Equal(t, c.want, found.neededBy(seen), c.name)
	}
	finished := &observation{plan: rollout.Plan{Phase: protocol.PhaseComplete}}
	assert.True(t, (&run{}).neededBy(finished), "it ends")
	assert.False(t, (&run{hold: ann}).neededBy(finished), "it is held")
}

func TestRunsAreCheckedOftenWhileSomethingChanges(t *testing.T) {
	now := time.Unix(1000, 0)
	working := func(updated int) *observation {
		return &observation{plan: rollout.Plan{Phase: protocol.PhaseProgressing, Pods: make([]protocol.SelectedPod, 1),
			Counts: protocol.Counts{Matched: 9, Remaining: 9, Updated: updated}}}
	}
	stuck := &observation{plan: rollout.Plan{Phase: protocol.PhaseWaiting, Counts: protocol.Counts{Matched: 9, Remaining: 9}}}
	var state runState
	assert.LessOrEqual(t, state.untilCheck(stuck, now), time.Duration(0), "a new operator checks at once")

	state.recordCheck(stuck, now)
	assert.Equal(t, idleCheckInterval, state.untilCheck(stuck, now))
	assert.Equal(t, minCheckInterval, state.untilCheck(working(1), now), "what frees a slot is checked at once")
	for _, next := range []time.Duration{1, 2, 4, 8, 8} {
		state.recordCheck(working(1), now)
		assert.Equal(t, next*time.Second, state.untilCheck(working(1), now))
	}
	assert.Equal(t, minCheckInterval, state.untilCheck(working(2), now))
	migrated := &observation{plan: rollout.Plan{Phase: protocol.PhaseWaiting, Counts: protocol.Counts{Matched: 9, Migrating: 2, Migrated: 1}}}
	state.recordCheck(migrated, now)
	assert.Equal(t, minCheckInterval, state.untilCheck(migrated, now), "the run may fall asleep just now")
	state.faultMayChange = true
	assert.Equal(t, faultCheckInterval, state.untilCheck(stuck, now))
}

func TestSpec7_2_CountsOfAGenerationFollowItsConditions(t *testing.T) {
	at := time.Unix(1000, 0)
	clock := clocktesting.NewFakePassiveClock(at)
	r := &reconciler{clock: clock}
	pods := []protocol.PodReference{{Namespace: "shop", Name: "a"}}
	seen := &observation{plan: rollout.Plan{NotUpgradable: pods, FalseConditions: pods}}
	var state runState
	state.observeGeneration(generation, at)
	set := setAt(generation)
	assert.Equal(t, statusTimeout, r.countsDelay(set, seen, &state))
	assert.Zero(t, r.countsDelay(set, &observation{plan: rollout.Plan{FalseConditions: pods}}, &state), "what can be upgraded again")
	assert.Zero(t, r.countsDelay(set, &observation{plan: rollout.Plan{NotUpgradable: pods}}, &state), "with their condition")
	at = at.Add(statusTimeout)
	clock.SetTime(at)
	state.observeGeneration(generation, at)
	assert.Zero(t, r.countsDelay(set, seen, &state), "for a while only")
	at = at.Add(-statusTimeout)
	clock.SetTime(at)
	set.Status.ObservedGeneration = generation
	assert.Zero(t, r.countsDelay(set, seen, &state), "written already")
}

func TestCorrectionsBecomeRare(t *testing.T) {
	var state runState
	now := time.Unix(1000, 0)
	state.recordStart(generation, now)
	assert.False(t, state.mayCorrect(now.Add(time.Second)), "the run may not have read it yet")
	for _, pause := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		now = now.Add(pause * time.Second)
		assert.False(t, state.mayCorrect(now.Add(-time.Millisecond)))
		assert.True(t, state.mayCorrect(now))
	}
}
