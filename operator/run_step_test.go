package operator

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/operator/runs"
	"github.com/outrigger/outrigger/temporal"
)

// slowTemporal is a fake Temporal service. The start of the run of a SidecarSet named slow blocks until answers
// contains a value.
type slowTemporal struct {
	workflowservice.WorkflowServiceClient
	answers chan error
	// run is the newest run of every SidecarSet. described is the number of
	// DescribeWorkflowExecution calls.
	run       *workflow.WorkflowExecutionInfo
	described int
	// damaged is the error of every DescribeWorkflowExecution call, if set.
	damaged error
	// answer is the answer of the run to the status query, and queried is the number of queries.
	answer  protocol.RolloutStatus
	queried int
	// signals are the names of the signals that were sent to an open run. unsignalled is the error of every
	// SignalWorkflowExecution call, if set.
	signals     []string
	unsignalled error
	// rejected is the error of every SignalWithStart call, if set. started is the newest call.
	rejected error
	started  *workflowservice.SignalWithStartWorkflowExecutionRequest
}

type slowClient struct {
	sdk.Client
	service *slowTemporal
}

func (c slowClient) WorkflowService() workflowservice.WorkflowServiceClient { return c.service }

func (s *slowTemporal) SignalWithStartWorkflowExecution(_ context.Context, request *workflowservice.SignalWithStartWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.SignalWithStartWorkflowExecutionResponse, error) {
	if s.rejected != nil {
		return nil, s.rejected
	}
	if strings.HasPrefix(request.WorkflowId, "sidecarset/slow/") {
		if err := <-s.answers; err != nil {
			return nil, err
		}
	} else {
		s.started = request
	}
	return &workflowservice.SignalWithStartWorkflowExecutionResponse{RunId: "run"}, nil
}

func (s *slowTemporal) DescribeWorkflowExecution(context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	s.described++
	if s.damaged != nil {
		return nil, s.damaged
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: s.run}, nil
}

func (s *slowTemporal) SignalWorkflowExecution(_ context.Context, request *workflowservice.SignalWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.SignalWorkflowExecutionResponse, error) {
	s.signals = append(s.signals, request.SignalName)
	return &workflowservice.SignalWorkflowExecutionResponse{}, s.unsignalled
}

// DescribeNamespace answers probes with an error that does not concern rollouts.
func (s *slowTemporal) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest, ...grpc.CallOption) (*workflowservice.DescribeNamespaceResponse, error) {
	return nil, serviceerror.NewInvalidArgument("no")
}

func (s *slowTemporal) ListWorkflowExecutions(context.Context, *workflowservice.ListWorkflowExecutionsRequest, ...grpc.CallOption) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return nil, serviceerror.NewInternal("no visibility")
}

func (s *slowTemporal) DescribeTaskQueue(context.Context, *workflowservice.DescribeTaskQueueRequest, ...grpc.CallOption) (*workflowservice.DescribeTaskQueueResponse, error) {
	return &workflowservice.DescribeTaskQueueResponse{}, nil
}

type slowEnv struct {
	*runStep
	*slowTemporal
	status  *statusStep
	changes *runChanges
	clock   *clocktesting.FakeClock
}

func newSlowEnv(t *testing.T, sets ...*v1alpha1.SidecarSet) *slowEnv {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.SidecarSet{})
	for _, set := range sets {
		builder = builder.WithObjects(set)
	}
	metrics := newMetrics(prometheus.NewRegistry())
	changes := newRunChanges()
	slow, clock := &slowTemporal{answers: make(chan error)}, clocktesting.NewFakeClock(time.Unix(1000, 0))
	o := runs.Options{Temporal: temporal.Options{Address: "temporal:7233", Namespace: "sidecars"}, TaskQueue: "queue", Logger: logr.Discard(), Clock: clock}
	client := runs.NewClient(slowClient{service: slow}, o, metrics.runs)
	go client.Start(t.Context())
	require.NoError(t, client.AwaitProbe(t.Context()))
	return &slowEnv{
		changes: changes,
		runStep: &runStep{
			client: client, calls: newCalls(), states: &runStates{}, mismatched: func(string) bool { return false }, changed: changes.take, clock: clock,
		},
		status: &statusStep{
			statusWriter: &statusWriter{reported: &reports{}, client: builder.Build(), writes: metrics.statusWrites}, temporal: client, evicts: evictsNothing,
			recorder: &events.FakeRecorder{}, metrics: metrics.rollouts,
		},
		clock: clock, slowTemporal: slow,
	}
}

// observe reconciles run and status of a SidecarSet with pods to upgrade.
func (e *slowEnv) observe(t *testing.T, name string) (*v1alpha1.SidecarSet, reconcile.Result) {
	t.Helper()
	set, p := e.pass(t, name)
	require.NoError(t, p.out.err)
	return set, p.result
}

// pass reconciles in the same way as observe, and returns the pass. The call to Temporal may have failed.
func (e *slowEnv) pass(t *testing.T, name string) (*v1alpha1.SidecarSet, *pass) {
	t.Helper()
	var set v1alpha1.SidecarSet
	require.NoError(t, e.status.client.Get(t.Context(), client.ObjectKey{Name: name}, &set))
	p := &pass{before: set.DeepCopy(), set: set.DeepCopy(), now: e.clock.Now()}
	p.plan = plan(protocol.PhaseProgressing, protocol.Counts{Matched: 2, Remaining: 2})
	require.NoError(t, e.reconcile(t.Context(), p))
	if !p.ended {
		require.NoError(t, e.status.reconcile(t.Context(), p))
	}
	require.NoError(t, e.status.client.Get(t.Context(), client.ObjectKey{Name: name}, &set))
	return &set, p
}

// outcomeOf reconciles the run of a SidecarSet, and returns the outcome.
func (e *slowEnv) outcomeOf(t *testing.T, set *v1alpha1.SidecarSet, seen observation, state *runState) outcome {
	t.Helper()
	p := &pass{set: set, observation: seen, state: state, now: e.clock.Now()}
	e.reconcileRun(t.Context(), p)
	require.NoError(t, p.out.err)
	return p.out
}

func named(name string) *v1alpha1.SidecarSet {
	set := setAt(0)
	set.Name = name
	return set
}

func TestSpec8_1_ASlowTemporalDelaysTheStatusOfNoOtherSet(t *testing.T) {
	env := newSlowEnv(t, named("slow"), named("quick"))
	slow, result := env.observe(t, "slow")
	assert.Equal(t, statusTimeout, result.RequeueAfter)
	assert.Zero(t, slow.Status.ObservedGeneration, "Temporal is given the generation first, if it takes less than a second")
	quick, _ := env.observe(t, "quick")
	assert.Equal(t, int64(generation), quick.Status.Rollout.Generation)

	env.clock.Step(statusTimeout)
	slow, result = env.observe(t, "slow")
	assert.Zero(t, result, "the end of the call is an event")
	assert.Equal(t, int64(generation), slow.Status.ObservedGeneration)
	assert.Nil(t, slow.Status.Rollout)

	env.answers <- nil
	assert.Equal(t, "slow", (<-env.calls.ended).Object.GetName())
	slow, result = env.observe(t, "slow")
	assert.Equal(t, int64(generation), slow.Status.Rollout.Generation)
	assert.Positive(t, result.RequeueAfter, "what happened meanwhile may need another call")
	assert.Nil(t, env.calls.of("slow"))
}

// If the write of the status fails after a slow call, the next pass reads the run again.
func TestSpec8_2_APassThatTakesASlowCallHasTheStateOfTheRun(t *testing.T) {
	set := named("slow")
	env := newSlowEnv(t, set)
	env.observe(t, "slow")
	env.answers <- nil
	<-env.calls.ended
	p := &pass{before: set, set: set.DeepCopy(), now: env.clock.Now()}
	require.NoError(t, env.reconcile(t.Context(), p))
	assert.True(t, p.out.started)
	assert.Same(t, env.states.of(set), p.state)
}

func TestAReadOfAnEarlierGenerationIsNotUsed(t *testing.T) {
	env := newSlowEnv(t, named("slow"))
	slow, _ := env.observe(t, "slow")
	slow.Generation++
	require.NoError(t, env.status.client.Update(t.Context(), slow))
	env.answers <- nil
	<-env.calls.ended
	slow, result := env.observe(t, "slow")
	assert.Nil(t, slow.Status.Rollout)
	assert.Positive(t, result.RequeueAfter)
	env.observe(t, "slow")
	env.answers <- nil
	<-env.calls.ended
	slow, _ = env.observe(t, "slow")
	assert.Equal(t, slow.Generation, slow.Status.Rollout.Generation)
}

// Only the SidecarSet whose calls time out reports the timeout, and only after a second call.
func TestSpec8_UnansweredCallsAreReportedByTheirSetAlone(t *testing.T) {
	env := newSlowEnv(t, named("slow"), named("quick"))
	for _, want := range []string{v1alpha1.ReasonRolloutProgress, v1alpha1.ReasonTemporalUnavailable} {
		env.observe(t, "slow")
		env.answers <- serviceerror.NewDeadlineExceeded("late")
		<-env.calls.ended
		slow, result := env.observe(t, "slow")
		assert.Equal(t, want, reasonAndMessage(slow, v1alpha1.ConditionProgressing).reason)
		assert.Positive(t, result.RequeueAfter)
	}
	quick, _ := env.observe(t, "quick")
	assert.Equal(t, v1alpha1.ReasonRolloutProgress, reasonAndMessage(quick, v1alpha1.ConditionProgressing).reason)

	env.observe(t, "slow")
	env.clock.Step(statusTimeout)
	slow, _ := env.observe(t, "slow")
	assert.Equal(t, v1alpha1.ReasonTemporalUnavailable, reasonAndMessage(slow, v1alpha1.ConditionProgressing).reason, "while the next call is pending")
	env.answers <- nil
	<-env.calls.ended
	slow, _ = env.observe(t, "slow")
	assert.Equal(t, v1alpha1.ReasonRolloutProgress, reasonAndMessage(slow, v1alpha1.ConditionProgressing).reason)
}

// Temporal rejects calls about one SidecarSet, because the data of the last run is damaged.
func TestSpec8_5_ARejectedStartIsReportedByItsSetAlone(t *testing.T) {
	env := newSlowEnv(t, named("damaged"), named("other"))
	other, _ := env.observe(t, "other")
	env.slowTemporal.rejected = serviceerror.NewDataLoss("the mutable state is damaged")
	for range 2 {
		damaged, p := env.pass(t, "damaged")
		require.ErrorContains(t, p.out.err, "the mutable state is damaged")
		assert.Equal(t, reasonMessage{v1alpha1.ReasonTemporalUnavailable, "Temporal at temporal:7233 rejects the calls about the rollout of this SidecarSet: the mutable state is damaged; check it: kubectl sidecarset check"},
			reasonAndMessage(damaged, v1alpha1.ConditionDegraded))
	}
	again, _ := env.observe(t, "other")
	assert.Equal(t, reasonAndMessage(other, v1alpha1.ConditionDegraded), reasonAndMessage(again, v1alpha1.ConditionDegraded))

	env.slowTemporal.rejected = nil
	damaged, _ := env.observe(t, "damaged")
	assert.Equal(t, v1alpha1.ReasonRolloutProgress, reasonAndMessage(damaged, v1alpha1.ConditionProgressing).reason)
	assert.Equal(t, int64(generation), damaged.Status.Rollout.Generation)
}

// Orphans reports once that the run of a finished SidecarSet works on another generation. The first read of
// the run fails.
func TestSpec8_2_AMismatchIsCorrectedAlsoAfterAFailedRead(t *testing.T) {
	env, set := newSlowEnv(t), setAt(generation)
	attribute, err := converter.GetDefaultDataConverter().ToPayload(generation - 1)
	require.NoError(t, err)
	env.run = &workflow.WorkflowExecutionInfo{Status: opened, HistoryLength: 20, SearchAttributes: &common.SearchAttributes{IndexedFields: map[string]*common.Payload{protocol.GenerationAttribute: attribute}}}
	reports := 1
	env.mismatched = func(string) bool { reports--; return reports == 0 }
	p := &pass{set: set, observation: observation{plan: plan(protocol.PhaseComplete, protocol.Counts{Matched: 2, Updated: 2})}, state: env.states.of(set)}
	env.damaged = serviceerror.NewUnavailable("restarts")
	for p.out = (outcome{}); env.started == nil; env.damaged = nil {
		p.now = env.clock.Now()
		env.reconcileRun(t.Context(), p)
		require.Greater(t, reports, -2, "the run keeps the other generation")
		env.clock.Step(minCorrectionBackoff)
	}
	assert.Equal(t, -1, reports)
}

// The operator reads the run of the earlier generation before the start of the next generation. This read
// fails.
func TestSpec8_5_ARunThatCannotBeReadIsReportedByItsSetAlone(t *testing.T) {
	set := named("damaged")
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: generation - 1}
	env := newSlowEnv(t, set)
	env.damaged = serviceerror.NewDataLoss("the mutable state is damaged")
	damaged, p := env.pass(t, "damaged")
	require.ErrorContains(t, p.out.err, "the mutable state is damaged")
	assert.Equal(t, v1alpha1.ReasonTemporalUnavailable, reasonAndMessage(damaged, v1alpha1.ConditionDegraded).reason)
	env.damaged, env.run = nil, &workflow.WorkflowExecutionInfo{Status: completed}
	damaged, _ = env.observe(t, "damaged")
	assert.Equal(t, v1alpha1.ReasonRolloutProgress, reasonAndMessage(damaged, v1alpha1.ConditionProgressing).reason)
}

// Between two attempts, status continues to report that the run of another generation cannot be signalled.
func TestSpec8_5_ARejectedCorrectionIsReportedUntilItSucceeds(t *testing.T) {
	env, set := newSlowEnv(t), setAt(generation)
	attribute, err := converter.GetDefaultDataConverter().ToPayload(generation - 1)
	require.NoError(t, err)
	env.run = &workflow.WorkflowExecutionInfo{
		Status: opened, HistoryLength: 20,
		SearchAttributes: &common.SearchAttributes{IndexedFields: map[string]*common.Payload{protocol.GenerationAttribute: attribute}},
	}
	env.slowTemporal.rejected = serviceerror.NewInternal("no")
	p := &pass{set: set, state: env.states.of(set), observation: observation{plan: plan(protocol.PhaseProgressing, protocol.Counts{Matched: 2, Remaining: 2})}}
	for _, rejects := range []bool{true, false, true} {
		p.now, p.out = env.clock.Now(), outcome{}
		env.reconcileRun(t.Context(), p)
		assert.Equal(t, rejects, p.out.err != nil)
		require.ErrorContains(t, p.out.rejected, "rejects the calls about the rollout of this SidecarSet: no")
		if rejects {
			env.clock.Step(time.Second)
		} else {
			env.clock.Step(maxCorrectionBackoff)
		}
	}
	env.slowTemporal.rejected = nil
	env.clock.Step(maxCorrectionBackoff)
	p.now, p.out = env.clock.Now(), outcome{}
	env.reconcileRun(t.Context(), p)
	require.NoError(t, p.out.err)
	assert.NoError(t, p.out.rejected)
}

func TestSpec8_1_APausedSidecarSetWithNothingLeftToDoCostsFewCalls(t *testing.T) {
	pause, err := converter.GetDefaultDataConverter().ToPayload(protocol.Pause{By: "ann"})
	require.NoError(t, err)
	memo := &common.Memo{Fields: map[string]*common.Payload{protocol.PauseMemo: pause}}
	for status, most := range map[enums.WorkflowExecutionStatus]int{opened: 9, completed: 1} {
		env := newSlowEnv(t)
		env.run = &workflow.WorkflowExecutionInfo{Status: status, Memo: memo, HistoryLength: 20}
		set := setAt(generation)
		seen := observation{plan: plan(protocol.PhaseComplete, protocol.Counts{Matched: 2, Updated: 2}), pause: &v1alpha1.RolloutPause{By: "ann"}}
		state, end := env.states.of(set), env.clock.Now().Add(10*time.Minute)
		for env.clock.Now().Before(end) {
			out := env.outcomeOf(t, set, seen, state)
			if out.pauseKnown {
				assert.Equal(t, seen.pause, out.pause)
			}
			if out.requeueAfter == 0 {
				break // only an event requeues the SidecarSet
			}
			env.clock.Step(out.requeueAfter)
		}
		assert.LessOrEqual(t, env.described, most, status)
		assert.Positive(t, env.described, status)
	}
}

// A pause that has ended must not be restored, even if the write of status is rejected and the run does not
// process the new generation for several seconds.
func TestSpec8_2_ARunThatWasResumedIsNotPausedAgainByAnOlderStatus(t *testing.T) {
	plain := converter.GetDefaultDataConverter()
	env, set := newSlowEnv(t), setAt(generation)
	attribute, err := plain.ToPayload(generation)
	require.NoError(t, err)
	resumed, err := plain.ToPayload(protocol.Pause{By: "bob"})
	require.NoError(t, err)
	env.run = &workflow.WorkflowExecutionInfo{
		Status: opened, HistoryLength: 20, Memo: &common.Memo{Fields: map[string]*common.Payload{protocol.ResumeMemo: resumed}},
		SearchAttributes: &common.SearchAttributes{IndexedFields: map[string]*common.Payload{protocol.GenerationAttribute: attribute}},
	}
	set.Generation++
	set.Status.Rollout.Pause = &v1alpha1.RolloutPause{By: "ann"}
	seen := observation{plan: plan(protocol.PhaseProgressing, protocol.Counts{Matched: 2, Remaining: 2}), pause: set.Status.Rollout.Pause}
	state := env.states.of(set)
	for range 2 { // the write of status conflicts
		out := env.outcomeOf(t, set, seen, state)
		assert.True(t, out.started && out.pauseKnown)
		assert.Nil(t, out.pause)
		env.clock.Step(minCorrectionBackoff)
	}

	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: set.Generation}
	seen.pause = nil
	env.outcomeOf(t, set, seen, state)
	assert.NotContains(t, env.signals, protocol.PauseSignal)
}

// The run is still paused after all pods have been updated. A user resumes the run an hour later.
func TestSpec8_2_AResumeIsMirroredAlsoWhenNothingIsLeftToDo(t *testing.T) {
	pause, err := converter.GetDefaultDataConverter().ToPayload(protocol.Pause{By: "ann"})
	require.NoError(t, err)
	env, set := newSlowEnv(t), setAt(generation)
	env.run = &workflow.WorkflowExecutionInfo{Status: opened, HistoryLength: 20, Memo: &common.Memo{Fields: map[string]*common.Payload{protocol.PauseMemo: pause}}}
	seen := observation{plan: plan(protocol.PhaseComplete, protocol.Counts{Matched: 2, Updated: 2}), pause: &v1alpha1.RolloutPause{By: "ann"}}
	state, end := env.states.of(set), env.clock.Now().Add(time.Hour)
	var out outcome
	for env.clock.Now().Before(end) {
		out = env.outcomeOf(t, set, seen, state)
		require.Positive(t, out.requeueAfter, "a run that is paused may be resumed")
		env.clock.Step(out.requeueAfter)
	}
	env.run = &workflow.WorkflowExecutionInfo{Status: completed, HistoryLength: 30}
	out = env.outcomeOf(t, set, seen, state)
	assert.True(t, out.pauseKnown)
	assert.Nil(t, out.pause)
	assert.Zero(t, out.requeueAfter)
}

// The workload was scaled to zero during the bake time, so the run completed. Later, the workload has pods of
// the old version again, which only a further step upgrades.
func TestSpec11_4_ARunThatCompletedInAStepIsStartedAgainInThisStep(t *testing.T) {
	plain := converter.GetDefaultDataConverter()
	attribute, err := plain.ToPayload(generation)
	require.NoError(t, err)
	env, set := newSlowEnv(t), setAt(generation)
	env.run = &workflow.WorkflowExecutionInfo{
		Status: completed, HistoryLength: 20,
		SearchAttributes: &common.SearchAttributes{IndexedFields: map[string]*common.Payload{protocol.GenerationAttribute: attribute}},
	}
	canary := &protocol.Stage{Generation: generation, Policy: "edge", Steps: 3, Index: 1, Step: &protocol.Step{Name: "canary", UpTo: intstr.FromInt32(1), Approval: true}}
	stage.ToStatus(set, canary)
	state := env.states.of(set)
	state.recordFinished(generation)
	seen := observation{plan: plan(protocol.PhaseStepReached, protocol.Counts{Matched: 101, Updated: 1, Remaining: 100})}
	out := env.outcomeOf(t, set, seen, state)
	assert.Nil(t, env.started, "the cache may lag behind the completed run")
	env.clock.Step(out.requeueAfter)
	env.outcomeOf(t, set, seen, state)
	require.NotNil(t, env.started)
	var input protocol.RolloutInput
	require.NoError(t, plain.FromPayloads(env.started.Input, &input))
	assert.Equal(t, canary, input.Progress.Stage)
	var signal protocol.GenerationInput
	require.NoError(t, plain.FromPayloads(env.started.SignalInput, &signal))
	assert.Equal(t, canary, signal.Stage, "a run of another generation continues in the step, too")
}

// The run was terminated before the operator recorded the last stage of the run.
func TestSpec11_12_ALostRunContinuesWithItsOwnQuarantine(t *testing.T) {
	set := setAt(generation)
	inStep := &protocol.Stage{Generation: set.Generation, Policy: "edge", Steps: 2, Step: &protocol.Step{UpTo: intstr.FromInt32(1)}}
	stage.ToStatus(set, inStep)
	quarantined, earlier := *inStep, *inStep
	quarantined.Quarantine = &protocol.Quarantine{Hash: "bad", Revision: "web-1", Reason: "3 pods failed"}
	earlier.Generation--
	for _, run := range []*runs.Run{nil, {}, {Stage: &earlier}} {
		p := &pass{set: set, run: run}
		assert.Nil(t, p.start(nil).Stage.Quarantine)
	}
	p := &pass{set: set, run: &runs.Run{Stage: &quarantined}}
	assert.Equal(t, quarantined.Quarantine, p.start(nil).Stage.Quarantine)
}

func TestSpec8_3_AWakeThatFailedIsSentAgain(t *testing.T) {
	env := newSlowEnv(t)
	p := &pass{set: named("quick"), state: &runState{}, now: env.clock.Now()}
	counts := protocol.Counts{Matched: 2, Remaining: 2}
	require.True(t, p.state.mayWake(counts, false, p.now))
	env.unsignalled = serviceerror.NewUnavailable("database failover")
	require.Error(t, env.wake(t.Context(), p))
	require.True(t, p.state.mayWake(counts, false, p.now))
	env.unsignalled = nil
	require.NoError(t, env.wake(t.Context(), p))
	assert.False(t, p.state.mayWake(counts, false, p.now))
}

// A rollback, and the measurement of failed pods, continue during a freeze.
func TestSpec8_3_ARunThatIsLostDuringAFreezeIsStartedAgain(t *testing.T) {
	env := newSlowEnv(t)
	p := &pass{set: setAt(generation), state: &runState{}, run: &runs.Run{Generation: generation, Status: enums.WORKFLOW_EXECUTION_STATUS_TERMINATED}, now: env.clock.Now()}
	p.plan, p.frozenReason = plan(protocol.PhaseFrozen, protocol.Counts{Matched: 2, Remaining: 1}), v1alpha1.ReasonFrozen
	require.NoError(t, env.restartRun(t.Context(), p))
	assert.NotNil(t, env.started)
}
