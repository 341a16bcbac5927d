package operator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/operator/runs"
	"github.com/outrigger/outrigger/temporal"
)

const (
	opened     = enums.WORKFLOW_EXECUTION_STATUS_RUNNING
	completed  = enums.WORKFLOW_EXECUTION_STATUS_COMPLETED
	terminated = enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
)

func TestPausesAreClearedOnlyByRunsThatShowIt(t *testing.T) {
	ann, anonymous := &v1alpha1.RolloutPause{By: "ann"}, &v1alpha1.RolloutPause{}
	memo := &protocol.Pause{By: "ann"}
	for _, c := range []struct {
		name   string
		before *v1alpha1.RolloutPause
		paused bool
		run    runs.Run
		want   *v1alpha1.RolloutPause
		known  bool
	}{
		{"paused", nil, false, runs.Run{Status: opened, Generation: generation, Pause: memo, Phase: protocol.PhasePaused}, ann, true},
		{"resumed", ann, false, runs.Run{Status: opened, Generation: generation, Phase: protocol.PhaseProgressing, Resumed: memo}, nil, true},
		{"of a backup from before the pause", ann, false, runs.Run{Status: opened, Generation: generation, Phase: protocol.PhaseProgressing}, nil, false},
		{"ended after its resume", ann, false, runs.Run{Status: completed, Generation: generation, Phase: protocol.PhaseComplete, Resumed: memo}, nil, true},
		{"ended in a backup from before the pause", ann, false, runs.Run{Status: completed, Generation: generation, Phase: protocol.PhaseComplete}, nil, false},
		{"terminated", ann, false, runs.Run{Status: terminated, Generation: generation, Phase: protocol.PhaseProgressing}, nil, false},
		{"terminated while paused", nil, false, runs.Run{Status: terminated, Generation: generation, Pause: memo}, ann, true},
		{"gone", ann, false, runs.Run{}, nil, false},
		{"of a restored backup", ann, false, runs.Run{Status: opened, Generation: generation - 1, Phase: protocol.PhaseProgressing}, nil, false},
		{"ended in a restored backup", ann, false, runs.Run{Status: completed, Generation: generation - 1, Phase: protocol.PhaseComplete}, nil, false},
		{"of an earlier version", nil, false, runs.Run{Status: opened, Generation: generation, Phase: protocol.PhasePaused}, anonymous, true},
		{"of an earlier version, with a user in status", ann, false, runs.Run{Status: opened, Generation: generation, Phase: protocol.PhasePaused}, ann, true},
		{"paused by the spec", nil, true, runs.Run{Status: opened, Generation: generation, Phase: protocol.PhasePaused}, nil, false},
		{"resumed while paused by the spec", ann, true, runs.Run{Status: opened, Generation: generation, Phase: protocol.PhasePaused}, nil, true},
		{"of an earlier version, paused by the spec too", anonymous, true, runs.Run{Status: opened, Generation: generation, Phase: protocol.PhasePaused}, nil, false},
	} {
		set := setAt(generation)
		set.Spec.UpdateStrategy.Paused = c.paused
		set.Status.Rollout.Pause = c.before
		got, known := pauseOf(set, &c.run)
		assert.Equal(t, c.known, known, c.name)
		assert.Equal(t, c.want, got, c.name)
	}
}

// Temporal has been restored from a backup that is older than the rollback.
func TestSpec11_12_AQuarantineIsLostOnlyIfNoRetryEndedIt(t *testing.T) {
	since := time.Date(2026, 1, 5, 9, 0, 0, 1234, time.UTC)
	q := protocol.Quarantine{Hash: "bad", Revision: "s-1", Since: since}
	for name, c := range map[string]struct {
		stage *protocol.Stage
		run   runs.Run
		lost  bool
	}{
		"before the first plan": {nil, runs.Run{Status: opened, Generation: generation}, true},
		"in a step":             {&protocol.Stage{Generation: generation, Hash: "bad"}, runs.Run{Status: opened, Generation: generation}, true},
		"of an older worker":    {&protocol.Stage{Generation: generation}, runs.Run{Status: opened, Generation: generation}, false},
		"retried before":        {&protocol.Stage{Generation: generation, Hash: "bad", Retried: since.Add(-time.Hour)}, runs.Run{Status: opened, Generation: generation}, true},
		"retried":               {&protocol.Stage{Generation: generation, Hash: "bad", Retried: since}, runs.Run{Status: opened, Generation: generation}, false},
		"a later rollback was retried while the operator was down": {&protocol.Stage{Generation: generation, Hash: "bad", Retried: since.Add(time.Minute)}, runs.Run{Status: opened, Generation: generation}, false},
		"rolled back":           {&protocol.Stage{Generation: generation, Quarantine: &q}, runs.Run{Status: opened, Generation: generation}, false},
		"of another generation": {nil, runs.Run{Status: opened, Generation: generation - 1}, false},
		"ended before":          {&protocol.Stage{Generation: generation, Hash: "bad", Done: true}, runs.Run{Status: completed, Generation: generation}, true},
	} {
		set := setAt(generation)
		set.Annotations = map[string]string{v1alpha1.HashAnnotation: "bad"}
		stage.ToStatus(set, &protocol.Stage{Generation: generation, Quarantine: &q})
		c.run.Stage = c.stage
		assert.Equal(t, c.lost, quarantineLost(set, &c.run), name)
		set.Annotations[v1alpha1.HashAnnotation] = "better"
		assert.False(t, quarantineLost(set, &c.run), name)
	}
}

// The operator was stopped after the start of the run, but before the operator removed the ended pause from
// status.
func TestSpec8_2_AResumedRolloutThatIsStartedAgainStaysResumed(t *testing.T) {
	plain, pause := converter.GetDefaultDataConverter(), &v1alpha1.RolloutPause{By: "ann"}
	set := setAt(generation)
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: generation, Pause: pause}
	attribute, err := plain.ToPayload(generation)
	require.NoError(t, err)
	attributes := &common.SearchAttributes{IndexedFields: map[string]*common.Payload{protocol.GenerationAttribute: attribute}}
	bob, err := plain.ToPayload(protocol.Pause{By: "bob"})
	require.NoError(t, err)

	env := newSlowEnv(t)
	env.run = &workflow.WorkflowExecutionInfo{Status: completed, HistoryLength: 20, SearchAttributes: attributes,
		Memo: &common.Memo{Fields: map[string]*common.Payload{protocol.ResumeMemo: bob}}}
	state := env.states.of(set)
	state.recordFinished(generation)
	seen := observation{plan: plan(protocol.PhaseProgressing, protocol.Counts{Matched: 2, Remaining: 2}), pause: pause}
	seen.plan.Pods = make([]protocol.SelectedPod, 2)
	env.clock.Step(env.outcomeOf(t, set, seen, state).requeueAfter)
	env.outcomeOf(t, set, seen, state)
	require.NotNil(t, env.started)

	env.run = &workflow.WorkflowExecutionInfo{Status: opened, HistoryLength: 5, SearchAttributes: attributes, Memo: env.started.Memo}
	out := env.outcomeOf(t, set, seen, (&runStates{}).of(set))
	assert.Equal(t, &protocol.Pause{By: "bob"}, out.resumed)
	assert.Nil(t, out.pause)
	assert.True(t, out.pauseKnown)
	assert.Empty(t, env.signals)
}

// A new generation begins with the pause of the previous run (SPEC §8.2).
func TestThePauseOfTheLastRunIsClaimed(t *testing.T) {
	ann, memo := &v1alpha1.RolloutPause{By: "ann"}, &protocol.Pause{By: "ann"}
	for _, c := range []struct {
		name  string
		run   runs.Run
		want  *v1alpha1.RolloutPause
		known bool
	}{
		{"paused", runs.Run{Status: opened, Generation: generation, Pause: memo, Phase: protocol.PhasePaused}, ann, true},
		{"resumed", runs.Run{Status: opened, Generation: generation, Phase: protocol.PhaseProgressing, Resumed: memo}, nil, true},
		{"the spec was paused", runs.Run{Status: opened, Generation: generation, Phase: protocol.PhasePaused}, nil, false},
		{"resumed while the spec was paused", runs.Run{Status: opened, Generation: generation, Phase: protocol.PhasePaused, Resumed: memo}, nil, true},
		{"started before status was written", runs.Run{Status: completed, Generation: generation + 1, Phase: protocol.PhaseComplete}, nil, true},
		{"the one in between", runs.Run{Status: completed, Generation: generation + 2, Phase: protocol.PhaseComplete}, nil, true},
		{"of no generation that there was", runs.Run{Status: completed, Generation: generation + 3, Phase: protocol.PhaseComplete}, nil, false},
		{"of a restored backup", runs.Run{Status: opened, Generation: generation - 1, Phase: protocol.PhaseProgressing}, nil, false},
		{"gone", runs.Run{}, nil, false},
	} {
		set := setAt(generation)
		set.Generation = generation + 2
		set.Status.Rollout.Pause = ann
		got, known := lastPause(set, &c.run)
		assert.Equal(t, c.known, known, c.name)
		assert.Equal(t, c.want, got, c.name)
	}
}

func pendingOf(activities ...string) (infos []*workflow.PendingActivityInfo) {
	for _, name := range activities {
		infos = append(infos, &workflow.PendingActivityInfo{ActivityType: &common.ActivityType{Name: name}})
	}
	return infos
}

func TestRunsAreWokenOnlyForPodsToUpgradeOrReset(t *testing.T) {
	ann := &protocol.Pause{By: "ann"}
	for _, c := range []struct {
		name           string
		pods, migrated int
		pause          *protocol.Pause
		activities     []*workflow.PendingActivityInfo
		want           bool
	}{
		{"pods to upgrade", 1, 0, nil, nil, true},
		{"pods to upgrade during resets", 1, 2, nil, pendingOf(protocol.ResetBatchActivity), true},
		{"pods to upgrade, paused", 1, 0, ann, nil, false},
		{"twins to reset", 0, 2, nil, nil, true},
		{"twins to reset, paused", 0, 2, ann, nil, true},
		{"twins that are being reset", 0, 2, nil, pendingOf(protocol.ResetBatchActivity), false},
		{"twins that the run waits for", 0, 2, nil, pendingOf(protocol.AwaitMigrationActivity), false},
		{"nothing", 0, 0, nil, nil, false},
	} {
		seen := &observation{plan: rollout.Plan{Phase: protocol.PhaseWaiting, Pods: make([]protocol.SelectedPod, c.pods), Counts: protocol.Counts{Migrating: 3, Migrated: c.migrated}}}
		found := runs.Run{Pause: c.pause, Activities: c.activities}
		assert.Equal(t, c.want, seen.hasWorkFor(&found), c.name)
	}
}

func TestRunsAreCheckedOftenWhileSomethingChanges(t *testing.T) {
	now := time.Unix(1000, 0)
	working := func(updated int) *observation {
		return &observation{plan: rollout.Plan{Phase: protocol.PhaseProgressing, Pods: make([]protocol.SelectedPod, 1),
			Counts: protocol.Counts{Matched: 9, Remaining: 9, Updated: updated}}}
	}
	stuck := &observation{plan: rollout.Plan{Phase: protocol.PhaseWaiting, Counts: protocol.Counts{Matched: 9, Remaining: 9}}}
	var state runState
	assert.LessOrEqual(t, state.untilCheck(stuck, now), time.Duration(0), "a new operator checks immediately")

	state.recordCheck(stuck, now)
	assert.Equal(t, idleCheckInterval, state.untilCheck(stuck, now))
	assert.Equal(t, minCheckInterval, state.untilCheck(working(1), now), "what frees a slot is checked immediately")
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
	s := &runStep{clock: clock}
	pods := []protocol.PodReference{{Namespace: "shop", Name: "a"}}
	seen := &observation{plan: rollout.Plan{NotUpgradable: pods, FalseConditions: pods}}
	var state runState
	state.observeGeneration(generation, at)
	set := setAt(generation)
	delay := func(seen *observation) time.Duration {
		return s.countsDelay(&pass{set: set, observation: *seen, state: &state})
	}
	assert.Equal(t, statusTimeout, delay(seen))
	assert.Zero(t, delay(&observation{plan: rollout.Plan{FalseConditions: pods}}), "what can be upgraded again")
	assert.Zero(t, delay(&observation{plan: rollout.Plan{NotUpgradable: pods}}), "with their condition")
	at = at.Add(statusTimeout)
	clock.SetTime(at)
	state.observeGeneration(generation, at)
	assert.Zero(t, delay(seen), "for a while only")
	at = at.Add(-statusTimeout)
	clock.SetTime(at)
	set.Status.ObservedGeneration = generation
	assert.Zero(t, delay(seen), "written already")
}

// A user has corrected an image that an admission policy rejected.
func TestSpec8_4_AGenerationForgetsTheRejectionsOfTheFormerGeneration(t *testing.T) {
	set := setAt(generation)
	set.Status.ObservedGeneration = generation - 1
	set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Reason: v1alpha1.ReasonRolloutFailing}}
	assert.Empty(t, faultOf(set))

	failing := runs.Fault{Reason: v1alpha1.ReasonRolloutFailing}
	state := runState{observed: generation - 1, waits: "old", fleetFault: "old", fault: failing}
	state.observeGeneration(generation, time.Unix(1000, 0))
	assert.Empty(t, state.fault)
	assert.Empty(t, state.waits+state.fleetFault)
	for _, observed := range []int64{generation, 0} {
		state = runState{observed: observed, fault: failing}
		state.observeGeneration(generation, time.Unix(1001, 0))
		assert.Equal(t, failing, state.fault, "the same generation, also after a restart of the operator")
	}
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

func TestSpec8_1_AfterARestoreOfEtcdTheNextGenerationIsStarted(t *testing.T) {
	var states runStates
	set := setAt(generation)
	set.UID, set.Generation = "uid", 7
	now := time.Unix(1000, 0)
	state := states.of(set)
	state.observeGeneration(7, now)
	state.recordStart(7, now)
	assert.Equal(t, int64(7), states.of(set).started)
	set.Generation = 6
	states.of(set).observeGeneration(6, now)
	set.Generation = 7 // the content may differ from the content of generation 7 before the restore
	assert.Zero(t, states.of(set).started)
}

// If old pods appear after the end of a rollout, the operator starts another run. This run may also be lost.
func TestSpec8_3_ALostRunIsRestartedAfterAnEarlierRunOfTheGenerationCompleted(t *testing.T) {
	env, state := newSlowEnv(t), &runState{}
	state.recordFinished(generation)
	restarted := func(run runs.Run, pods []protocol.SelectedPod) bool {
		env.started = nil
		p := &pass{set: setAt(generation), state: state, run: &run, now: env.clock.Now()}
		p.plan = plan(protocol.PhaseWaiting, protocol.Counts{Matched: 2, Updated: 2})
		p.plan.Pods = pods
		require.NoError(t, env.restartRun(t.Context(), p))
		return env.started != nil
	}
	completed := runs.Run{Generation: generation, Status: enums.WORKFLOW_EXECUTION_STATUS_COMPLETED}
	terminated := runs.Run{Generation: generation, Status: enums.WORKFLOW_EXECUTION_STATUS_TERMINATED}
	old := make([]protocol.SelectedPod, 1)
	assert.False(t, restarted(terminated, nil), "the rollout has ended")
	assert.False(t, restarted(completed, old), "a worker may start a batch before it completes the run")
	env.clock.Step(restartGracePeriod)
	assert.True(t, restarted(completed, old), "old pods have appeared")
	assert.True(t, restarted(terminated, nil), "the upgraded pod is not ready yet")
}

func TestSpec8_2_AWriteOfStatusThatFailedReadsAnEndedRunAgain(t *testing.T) {
	now, state, set := time.Unix(1000, 0), &runState{}, setAt(generation)
	run := &runs.Run{Generation: set.Generation, Status: enums.WORKFLOW_EXECUTION_STATUS_COMPLETED}
	_, due := state.untilEndCheck(set.Generation, false, now)
	assert.True(t, due)
	state.recordEndCheck(set, run, false, now)
	_, due = state.untilEndCheck(set.Generation, false, now)
	assert.False(t, due)
	failing := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return errors.New("conflict")
		},
	}).Build()
	step := &statusStep{statusWriter: &statusWriter{reported: &reports{}, client: failing}, metrics: newRolloutMetrics(clocktesting.NewFakePassiveClock(now)), evicts: func(string) (bool, bool) { return false, true }}
	err := step.reconcile(t.Context(), &pass{set: set, before: setAt(0), state: state, now: now})
	assert.ErrorContains(t, err, "conflict")
	left, due := state.untilEndCheck(set.Generation, false, now)
	assert.True(t, due && left <= 0)
}

// A run that completes during the start of the next generation is not a fault of Temporal.
func TestARunThatIsAboutToEndIsSignalledAgainSoon(t *testing.T) {
	closing := &serviceerror.ResourceExhausted{Cause: enums.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW, Message: "workflow operation can not be applied because workflow is closing"}
	env := newSlowEnv(t)
	env.rejected = closing
	p := &pass{set: setAt(0), state: &runState{}}
	env.reconcileRun(t.Context(), p)
	assert.Equal(t, outcome{requeueAfter: busyRetryInterval}, p.out)
	assert.False(t, runs.IsThrottled(closing))
	assert.False(t, temporal.IsUnreachable(closing))
}

// The last upgraded pods of a step or of a rollback become ready after the run began to sleep.
func TestSpec11_2_RunsAreWokenAtTheEndOfAStepAndOfARollback(t *testing.T) {
	ann := &protocol.Pause{By: "ann"}
	for _, c := range []struct {
		plan, run protocol.Phase
		pause     *protocol.Pause
		want      bool
	}{
		{protocol.PhaseStepReached, protocol.PhaseWaiting, nil, true},
		{protocol.PhaseStepReached, protocol.PhaseFrozen, nil, true},
		{protocol.PhaseStepReached, protocol.PhaseBaking, nil, false},
		{protocol.PhaseStepReached, protocol.PhaseAwaitingApproval, nil, false},
		{protocol.PhaseStepReached, protocol.PhasePaused, ann, false},
		{protocol.PhaseQuarantined, protocol.PhaseWaiting, nil, true},
		{protocol.PhaseQuarantined, protocol.PhaseQuarantined, nil, false},
		{protocol.PhaseWaiting, protocol.PhaseWaiting, nil, false},
	} {
		seen := &observation{plan: rollout.Plan{Phase: c.plan}}
		assert.Equal(t, c.want, seen.hasWorkFor(&runs.Run{Phase: c.run, Pause: c.pause}), "%s in %s", c.plan, c.run)
	}
	for phase, want := range map[protocol.Phase]bool{
		protocol.PhaseFrozen: true, protocol.PhaseGateRunning: true, protocol.PhaseBaking: true, protocol.PhaseAwaitingApproval: true,
		protocol.PhaseWaiting: false, protocol.PhasePaused: false,
	} {
		now := time.Unix(1000, 0)
		p := &pass{run: &runs.Run{Phase: phase}, state: &runState{}}
		assert.False(t, p.mayWake(now), phase)
		p.unhealthy = true
		assert.Equal(t, want, p.mayWake(now), phase)
		p.plan.Counts.Converging++
		assert.False(t, want && p.mayWake(now.Add(minWakeInterval-1)), "the pods become ready and unready again")
		assert.Equal(t, want, p.mayWake(now.Add(minWakeInterval)), phase)
	}
	var state runState
	now := time.Unix(1000, 0)
	converging := &observation{plan: rollout.Plan{Phase: protocol.PhaseWaiting, Counts: protocol.Counts{Matched: 2, Converging: 2}}}
	state.recordCheck(converging, now)
	for _, phase := range []protocol.Phase{protocol.PhaseStepReached, protocol.PhaseQuarantined} {
		ready := &observation{plan: rollout.Plan{Phase: phase, Counts: protocol.Counts{Matched: 2}}}
		assert.Equal(t, minCheckInterval, state.untilCheck(ready, now), "the run is checked soon")
	}
}
