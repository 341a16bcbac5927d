package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
)

// cluster is a member whose SidecarSet and Temporal are simulated.
type cluster struct {
	*Member
	t            *testing.T
	set          *v1alpha1.SidecarSet
	hash         string
	local, fleet *mocks.Client
	// updates are the names of the updates that the run has received. refused are the updates that the run
	// rejects.
	updates []string
	// given is the permit that the run has received last.
	given   protocol.Permit
	refused map[string]bool
	// state is the state of the rollout in the fleet.
	state protocol.FleetState
}

func newCluster(t *testing.T, conditions ...metav1.Condition) *cluster {
	t.Helper()
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "envoy", UID: "1", Generation: 3}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "edge"}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v1"}}}
	set.Status.Conditions = conditions
	completed, err := revision.Completed(set)
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	c := &cluster{t: t, set: set, hash: completed.Annotations[v1alpha1.HashAnnotation], local: &mocks.Client{}, fleet: &mocks.Client{}, refused: map[string]bool{}}
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(set).WithStatusSubresource(set).Build()
	c.Member = &Member{Live: live, Local: c.local, Fleet: c.fleet, TaskQueue: "q", Clock: clock.RealClock{}}
	c.local.On("UpdateWorkflow", mock.Anything, mock.Anything).Return(func(_ context.Context, o sdk.UpdateWorkflowOptions) (sdk.WorkflowUpdateHandle, error) {
		if c.refused[o.UpdateName] {
			return nil, errors.New("refused")
		}
		c.updates = append(c.updates, o.UpdateName)
		if o.UpdateName == protocol.PermitUpdate {
			c.given = o.Args[0].(protocol.Permit)
		}
		handle := &mocks.WorkflowUpdateHandle{}
		handle.On("Get", mock.Anything, mock.Anything).Return(nil)
		return handle, nil
	})
	c.fleet.On("QueryWorkflow", mock.Anything, "fleet/envoy", "", protocol.StatusQuery).Return(func(context.Context, string, string, string, ...any) (converter.EncodedValue, error) {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(&c.state)
		return sdk.NewValue(payloads), err
	})
	return c
}

// run sets the response of the newest run to the query status. If status is nil, Temporal has no run.
func (c *cluster) run(status *protocol.RolloutStatus) {
	query := c.local.On("QueryWorkflow", mock.Anything, protocol.WorkflowID("envoy", "1"), "", protocol.StatusQuery)
	if status == nil {
		query.Return(nil, serviceerror.NewNotFound("no run"))
		return
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(status)
	require.NoError(c.t, err)
	query.Return(sdk.NewValue(payloads), nil)
}

// reachable sets the error that the Temporal Service of the fleet returns for heartbeats. A nil error makes the
// fleet reachable.
func (c *cluster) reachable(err error) {
	c.fleet.On("RecordActivityHeartbeat", mock.Anything, mock.Anything, mock.Anything).Return(err)
}

// do calls the function call as an activity, and requires success.
func (c *cluster) do(call func(context.Context) error) {
	c.t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(call)
	_, err := env.ExecuteActivity(call)
	require.NoError(c.t, err)
}

// advance gives the permit of an attempt while the fleet rolls the content out with the same attempt.
func (c *cluster) advance(attempt int) (result protocol.FleetResult, failure error) {
	c.state = protocol.FleetState{Phase: protocol.FleetRolling, Hash: c.hash, Attempt: attempt}
	return c.permit(attempt)
}

func (c *cluster) permit(attempt int) (result protocol.FleetResult, failure error) {
	c.do(func(ctx context.Context) error {
		local, err := c.read(ctx, "envoy")
		if err != nil {
			return err
		}
		result, failure = c.Member.advance(ctx, local, protocol.Permit{Hash: c.hash, Attempt: attempt})
		return nil
	})
	return result, failure
}

func ended() metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRolloutComplete, ObservedGeneration: 3}
}

// Temporal deletes a run after the retention of its namespace.
func TestSpec12_2_ARolloutWhoseRunTemporalDeletedHasCompleted(t *testing.T) {
	c := newCluster(t, ended())
	c.run(nil)
	result, err := c.advance(1)
	require.NoError(t, err)
	assert.Equal(t, protocol.ClusterCompleted, result.State)

	for reason, state := range map[string]protocol.FleetClusterState{
		v1alpha1.ReasonNotUpgradablePods: protocol.ClusterCompleted, v1alpha1.ReasonNotUpdate: protocol.ClusterCompleted, v1alpha1.ReasonPaused: "",
	} {
		condition := ended()
		condition.Reason = reason
		c = newCluster(t, condition)
		c.run(nil)
		result, err = c.advance(1)
		require.NoError(t, err)
		assert.Equal(t, state, result.State, reason)
	}

	c = newCluster(t)
	c.run(nil)
	result, err = c.advance(1)
	require.NoError(t, err)
	assert.Empty(t, result.State, "the operator has not started a run")
}

// The rollout of the content has ended before the content failed in another cluster. The run of the rollout
// is deleted, or is open because pods have to be upgraded again.
func TestSpec12_4_ContentThatWasRolledOutIsRolledBack(t *testing.T) {
	for name, run := range map[string]*protocol.RolloutStatus{
		"Temporal deleted the run": nil,
		"the run is open":          {Generation: 3, Phase: protocol.PhaseProgressing},
	} {
		t.Run(name, func(t *testing.T) { testRollbackOfGoodContent(t, run) })
	}
}

func testRollbackOfGoodContent(t *testing.T, run *protocol.RolloutStatus) {
	c, now := newCluster(t, ended()), clocktesting.NewFakeClock(time.Unix(1000, 0))
	c.Clock = now
	c.run(run)
	c.reachable(nil)
	c.set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Hash: c.hash, ResourceVersion: "2"}, {Hash: "before", Revision: "envoy-1", ResourceVersion: "1"}}
	c.set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: c.set.Generation, Policy: "edge", Stage: &v1alpha1.RolloutStage{
		Step: 2, Steps: 2, UpTo: new(intstr.FromString("100%")), MaxUnavailablePerOwner: 1, RespectPodDisruptionBudgets: true, ReachedAt: new(metav1.NewMicroTime(now.Now())),
	}}
	require.NoError(t, c.Live.(client.Client).Status().Update(t.Context(), c.set))
	started := c.local.On("SignalWithStartWorkflow", mock.Anything, mock.Anything, protocol.GenerationSignal, mock.Anything, mock.Anything, mock.Anything, mock.Anything)
	started.Return(nil, errors.New("no answer"))
	c.do(func(ctx context.Context) error {
		local, err := c.read(ctx, "envoy")
		if err != nil {
			return err
		}
		attempt := &rollback{FleetRolloutInput: protocol.FleetRolloutInput{Set: "envoy", Permit: protocol.Permit{Hash: c.hash}}}
		_, err = c.rollBack(ctx, local, attempt)
		require.ErrorContains(t, err, "no answer")
		started.Return(nil, nil)
		for range 2 {
			// During the second attempt, the run has not read the signal yet.
			if _, err = c.rollBack(ctx, local, attempt); err != nil {
				return err
			}
		}
		require.Len(t, c.local.Calls, 3, "one read, one failed signal, one signal")
		now.Step(signalInterval)
		_, err = c.rollBack(ctx, local, attempt)
		return err
	})
	require.Len(t, c.local.Calls, 4, "the run may have read the signal in another generation")
	assert.Empty(t, c.updates)
	signal := c.local.Calls[2].Arguments.Get(3).(protocol.GenerationInput)
	assert.Equal(t, "envoy-1", signal.Stage.Quarantine.Revision)
	assert.Equal(t, "edge", signal.Stage.Policy)
	assert.Equal(t, &protocol.Step{UpTo: intstr.FromString("100%"), MaxPerOwner: 1, RespectBudgets: true}, signal.Stage.Step, "the limits of the policy apply to the rollback")
	assert.Nil(t, signal.Stage.Reached)
}

// The worker restarts, and a user changes the content of the cluster before the next attempt of the activity.
func TestSpec12_2_ARetriedRolloutKnowsThatTheClusterHadTheContent(t *testing.T) {
	for _, last := range []struct {
		heartbeat any
		want      protocol.FleetClusterState
	}{{heartbeat{HadContent: true}, protocol.ClusterSuperseded}, {"an earlier release", protocol.ClusterSkipped}, {nil, protocol.ClusterSkipped}} {
		c := newCluster(t)
		c.run(nil)
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(c.Rollout)
		if last.heartbeat != nil {
			env.SetHeartbeatDetails(last.heartbeat)
		}
		value, err := env.ExecuteActivity(c.Rollout, protocol.FleetRolloutInput{Set: "envoy", Permit: protocol.Permit{Hash: "other"}})
		require.NoError(t, err)
		var result protocol.FleetResult
		require.NoError(t, value.Get(&result))
		assert.Equal(t, last.want, result.State)
	}
}

// The worker of a cluster without the content restarts more often than input.Within.
func TestSpec12_2_ARetriedRolloutSkipsTheClusterAfterTheTimeOfAllAttempts(t *testing.T) {
	c := newCluster(t)
	c.run(nil)
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(c.Rollout)
	env.SetHeartbeatDetails(heartbeat{Began: c.Clock.Now().Add(-time.Hour)})
	value, err := env.ExecuteActivity(c.Rollout, protocol.FleetRolloutInput{Set: "envoy", Permit: protocol.Permit{Hash: "other"}, Within: time.Hour})
	require.NoError(t, err)
	var result protocol.FleetResult
	require.NoError(t, value.Get(&result))
	assert.Equal(t, protocol.ClusterSkipped, result.State)
}

// A request for confirmation replaces the details of the heartbeat in the fleet.
func TestSpec12_2_ARequestForConfirmationKeepsWhatTheClusterHad(t *testing.T) {
	c := newCluster(t)
	c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhaseFrozen})
	c.state = protocol.FleetState{Phase: protocol.FleetRolling, Hash: c.hash, Attempt: 1}
	ctx, cancel := context.WithCancel(t.Context())
	var details []any
	c.fleet.On("RecordActivityHeartbeat", mock.Anything, mock.Anything, mock.Anything).Run(func(call mock.Arguments) {
		details = append(details, call.Get(2))
		cancel()
	}).Return(errors.New("away"))
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	env.RegisterActivity(c.Rollout)
	_, err := env.ExecuteActivity(c.Rollout, protocol.FleetRolloutInput{Set: "envoy", Permit: protocol.Permit{Hash: c.hash, Attempt: 1}})
	require.Error(t, err)
	require.Len(t, details, 1)
	assert.True(t, details[0].(heartbeat).HadContent)
}

// A member that cannot reach the fleet gives no permit, because the content may have failed in another
// cluster.
func TestSpec12_5_AMemberWithoutTheFleetGivesNoPermit(t *testing.T) {
	c := newCluster(t)
	c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhaseFrozen})
	c.reachable(errors.New("the activity is cancelled"))
	_, err := c.advance(1)
	require.ErrorContains(t, err, "the activity is cancelled")
	assert.Empty(t, c.updates)
}

// While the cluster was unreachable, the content failed in another cluster, and the fleet was paused.
func TestSpec12_4_AClusterThatReturnsGetsNoPermitForFailedContent(t *testing.T) {
	c := newCluster(t)
	c.reachable(nil)
	c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhaseFrozen})
	for name, state := range map[string]protocol.FleetState{
		"paused":        {Phase: protocol.FleetPaused, Hash: c.hash, Attempt: 1},
		"failed":        {Phase: protocol.FleetFailed, Hash: c.hash, Attempt: 1},
		"other content": {Phase: protocol.FleetRolling, Hash: "other", Attempt: 1},
		"retried":       {Phase: protocol.FleetRolling, Hash: c.hash, Attempt: 2},
	} {
		c.state = state
		result, err := c.permit(1)
		require.ErrorIs(t, err, errUnwanted, name)
		assert.Empty(t, result.State, name)
		assert.Empty(t, c.updates, name)
	}
	_, err := c.advance(1)
	require.NoError(t, err)
	assert.Equal(t, []string{protocol.PermitUpdate}, c.updates)
	assert.WithinDuration(t, time.Now(), c.given.NotAfter, time.Hour, "Temporal may deliver the permit after an outage of all workers")
}

// The member first retries the run, and then sends the permit. In the opposite order, the earlier failure would
// count as a failure of the retry.
func TestSpec12_4_ARetryOfTheFleetRetriesTheRunFirst(t *testing.T) {
	c := newCluster(t)
	c.reachable(nil)
	c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhaseQuarantined, Permit: &protocol.Permit{Hash: c.hash, Attempt: 1},
		Stage: &protocol.Stage{Generation: 3, Quarantine: &protocol.Quarantine{Hash: c.hash, Reason: "bad"}}})
	result, err := c.advance(1)
	require.NoError(t, err)
	assert.Equal(t, protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad", Attempt: 1}, result)
	c.refused[protocol.RetryUpdate] = true
	_, err = c.advance(2)
	require.ErrorContains(t, err, "refused")
	assert.Empty(t, c.updates)
	delete(c.refused, protocol.RetryUpdate)
	_, err = c.advance(2)
	require.NoError(t, err)
	assert.Equal(t, []string{protocol.RetryUpdate, protocol.PermitUpdate}, c.updates)
}

// A user has aborted the rollout before the first permit of the fleet, or the permit of a user has failed.
func TestSpec12_4_TheFirstPermitOfTheFleetRetriesNothing(t *testing.T) {
	quarantined := &protocol.Stage{Generation: 3, Quarantine: &protocol.Quarantine{Reason: "bad"}}
	byPolicy := protocol.PauseByPolicy("edge", "bad")
	for name, status := range map[string]protocol.RolloutStatus{
		"aborted": {Phase: protocol.PhaseQuarantined, Stage: quarantined},
		"permitted by a user and paused by policy": {Phase: protocol.PhasePaused, Pause: &byPolicy, Permit: &protocol.Permit{By: "ann"}},
	} {
		c := newCluster(t)
		c.reachable(nil)
		quarantined.Quarantine.Hash, status.Generation = c.hash, 3
		if status.Permit != nil {
			status.Permit.Hash = c.hash
		}
		c.run(&status)
		result, err := c.advance(1)
		require.NoError(t, err, name)
		assert.Equal(t, protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}, result, name)
		assert.Empty(t, c.updates, name)
		_, err = c.advance(2)
		require.NoError(t, err, name)
		assert.Len(t, c.updates, 2, name)
	}
	for name, failed := range map[string]*protocol.Stage{
		"failed pods": {Generation: 3, Failed: new(2)},
		"failed gate": {Generation: 3, Step: &protocol.Step{}, Gates: []protocol.GateState{{Name: "errors", Phase: protocol.GateFailure}}},
	} {
		// The cluster joined the fleet after the policy had paused the content.
		c := newCluster(t)
		c.reachable(nil)
		failed.Hash = c.hash
		c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhasePaused, Pause: &byPolicy, Stage: failed})
		result, err := c.advance(1)
		require.NoError(t, err, name)
		assert.Equal(t, protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}, result, name)
		assert.Empty(t, c.updates, name)
	}
	c := newCluster(t)
	c.reachable(nil)
	c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhasePaused, Pause: &byPolicy})
	_, err := c.advance(1)
	require.NoError(t, err)
	assert.Equal(t, []string{protocol.ResumeUpdate, protocol.PermitUpdate}, c.updates, "earlier content has failed")
}

// A pause by an inconclusive gate does not mean that the content has failed, so the member waits for a user of
// its cluster.
func TestSpec12_4_AnInconclusiveGateOfAClusterIsNoFailure(t *testing.T) {
	byPolicy := protocol.PauseByPolicy("edge", "gate errors is inconclusive")
	inconclusive := []protocol.GateState{{Name: "errors", Phase: protocol.GateInconclusive}}
	for _, step := range []struct {
		name    string
		permit  int // the attempt of the permit of the run, if any
		failed  *int
		attempt int
		result  protocol.FleetClusterState
		updates []string
		waits   string // the reason in the heartbeat
	}{
		{name: "the member waits", permit: 1, attempt: 1, waits: "waits for a promote or a resume: gate errors is inconclusive"},
		{name: "the policy paused the content before the cluster joined the fleet", attempt: 1, updates: []string{protocol.PermitUpdate}},
		{name: "a retry of the fleet runs the gates again", permit: 1, attempt: 2, updates: []string{protocol.ResumeUpdate, protocol.PermitUpdate}},
		{name: "pods failed before the pause", permit: 1, failed: new(2), attempt: 1, result: protocol.ClusterFailed},
	} {
		c := newCluster(t)
		c.reachable(nil)
		status := &protocol.RolloutStatus{Generation: 3, Phase: protocol.PhasePaused, Pause: &byPolicy, Stage: &protocol.Stage{
			Generation: 3, Hash: c.hash, Failed: step.failed, Step: &protocol.Step{}, Gates: inconclusive,
		}}
		if step.permit > 0 {
			status.Permit = &protocol.Permit{Hash: c.hash, Attempt: step.permit}
		}
		c.run(status)
		result, err := c.advance(step.attempt)
		if step.waits != "" {
			require.ErrorContains(t, err, step.waits, step.name)
		} else {
			require.NoError(t, err, step.name)
		}
		assert.Equal(t, step.result, result.State, step.name)
		assert.Equal(t, step.updates, c.updates, step.name)
	}
}

// The fleet retries right after an abort. The run has received the abort, but has not begun to roll back.
func TestSpec12_4_ARetryOfTheFleetAwaitsAnAbort(t *testing.T) {
	c := newCluster(t)
	c.reachable(nil)
	c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhaseProgressing, Permit: &protocol.Permit{Hash: c.hash, Attempt: 1},
		Stage: &protocol.Stage{Generation: 3, Aborted: &protocol.Approval{By: byFleet}}})
	result, err := c.advance(2)
	require.NoError(t, err)
	assert.Empty(t, result)
	assert.Empty(t, c.updates)
}

func TestSpec12_4_ARetryOfTheFleetResumesARunThatItCouldNotRollBack(t *testing.T) {
	c := newCluster(t)
	c.reachable(nil)
	c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhasePaused, Permit: &protocol.Permit{Hash: c.hash, Attempt: 1}, Pause: &protocol.Pause{By: byFleet}})
	_, err := c.advance(2)
	require.NoError(t, err)
	assert.Equal(t, []string{protocol.ResumeUpdate, protocol.PermitUpdate}, c.updates)
}

// steppedClock sends ticks on an unbuffered channel, so the member receives a tick only after the end of the
// check for the previous tick.
type steppedClock struct {
	*clocktesting.FakeClock
	ticks chan time.Time
}

func (c steppedClock) NewTicker(time.Duration) clock.Ticker { return c }
func (c steppedClock) C() <-chan time.Time                  { return c.ticks }
func (c steppedClock) Stop()                                {}

// second advances the clock by one second, and returns after the member has finished at least one further
// check.
func (c steppedClock) second() {
	c.Step(time.Second)
	for range 2 {
		c.ticks <- c.Now()
	}
}

// A fleet of hundreds of clusters may be paused for days, so each member must send few requests.
func TestSpec12_4_AMemberAsksAPausedFleetEveryThirtySeconds(t *testing.T) {
	c := newCluster(t)
	c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhaseFrozen})
	c.state = protocol.FleetState{Phase: protocol.FleetPaused, Hash: c.hash, Attempt: 1}
	stepped := steppedClock{clocktesting.NewFakeClock(time.Unix(1000, 0)), make(chan time.Time)}
	c.Clock = stepped
	c.do(func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		go func() {
			for range 61 {
				stepped.second()
			}
			cancel()
		}()
		_, err := c.Rollout(ctx, protocol.FleetRolloutInput{Set: "envoy", Permit: protocol.Permit{Hash: c.hash, Attempt: 1}})
		require.ErrorIs(t, err, context.Canceled)
		return nil
	})
	c.fleet.AssertNumberOfCalls(t, "QueryWorkflow", 3)
}

// The RolloutPolicy of the cluster has paused the run, and the first abort did not reach the run.
func TestSpec12_4_AnAbortIsRepeatedUntilTheRunHasAnswered(t *testing.T) {
	policy := protocol.Pause{By: "RolloutPolicy edge", At: time.Unix(1000, 0)}
	fleet := protocol.Pause{By: byFleet, At: time.Unix(2000, 0), Reason: "no earlier revision"}
	attempt := &rollback{FleetRolloutInput: protocol.FleetRolloutInput{Set: "envoy"}}
	for _, step := range []struct {
		pause   protocol.Pause
		refused bool
		result  protocol.FleetClusterState
		updates []string
	}{
		{policy, true, "", nil},
		{policy, false, "", []string{protocol.AbortUpdate}},
		{fleet, false, protocol.ClusterFailed, nil},
	} {
		c := newCluster(t)
		c.reachable(nil)
		attempt.Permit.Hash = c.hash
		c.refused[protocol.AbortUpdate] = step.refused
		c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhasePaused, Pause: &step.pause})
		c.do(func(ctx context.Context) error {
			local, err := c.read(ctx, "envoy")
			if err != nil {
				return err
			}
			result, err := c.rollBack(ctx, local, attempt)
			assert.Equal(t, step.refused, err != nil)
			assert.Equal(t, step.result, result.State)
			return nil
		})
		assert.Equal(t, step.updates, c.updates)
	}
}

// The run found no earlier revision and paused, and a user replaced the pause before the member read the run.
func TestSpec12_4_AnAcceptedAbortIsNotRepeatedAfterAPauseOfAUser(t *testing.T) {
	attempt := &rollback{FleetRolloutInput: protocol.FleetRolloutInput{Set: "envoy"}}
	for _, step := range []struct {
		pause   *protocol.Pause
		result  protocol.FleetClusterState
		updates []string
	}{
		{nil, "", []string{protocol.AbortUpdate}},
		{&protocol.Pause{By: "ann", At: time.Unix(2000, 0), Reason: "incident"}, protocol.ClusterFailed, nil},
	} {
		c := newCluster(t)
		c.reachable(nil)
		attempt.Permit.Hash = c.hash
		c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhaseProgressing, Pause: step.pause})
		c.do(func(ctx context.Context) error {
			local, err := c.read(ctx, "envoy")
			if err != nil {
				return err
			}
			result, err := c.rollBack(ctx, local, attempt)
			assert.Equal(t, step.result, result.State)
			return err
		})
		assert.Equal(t, step.updates, c.updates)
	}
}

// A quarantine in a signal does not end a pause, so the member resumes the run. A pause that began during the
// rollback stays.
func TestSpec12_4_ARollbackEndsThePauseBeforeIt(t *testing.T) {
	since := time.Unix(1000, 0)
	for at, want := range map[time.Duration][]string{-time.Second: {protocol.ResumeUpdate}, time.Second: nil} {
		c := newCluster(t)
		c.reachable(nil)
		c.run(&protocol.RolloutStatus{Generation: 3, Phase: protocol.PhasePaused, Pause: &protocol.Pause{By: "ann", At: since.Add(at)},
			Stage: &protocol.Stage{Generation: 3, Quarantine: &protocol.Quarantine{Hash: c.hash, Since: since}}})
		c.do(func(ctx context.Context) error {
			local, err := c.read(ctx, "envoy")
			if err == nil {
				_, err = c.rollBack(ctx, local, &rollback{FleetRolloutInput: protocol.FleetRolloutInput{Set: "envoy", Permit: protocol.Permit{Hash: c.hash}}})
			}
			return err
		})
		assert.Equal(t, want, c.updates, at)
	}
}

// The fleet adds names to the reason of a user, so the reason may be longer than a run accepts.
func TestSpec12_4_ALongReasonStopsNoFreeze(t *testing.T) {
	freeze := protocol.FleetFreeze{By: "ann", Reason: strings.Repeat("é", protocol.MaxPauseText/2)}
	assert.LessOrEqual(t, len(reasonOf(freeze)), protocol.MaxPauseText)
}

// If the activity did not return when the worker stops, the fleet would notice the stop only at the heartbeat
// timeout.
func TestAnActivityOfAMemberEndsWithItsWorker(t *testing.T) {
	c := newCluster(t)
	stopping := make(chan struct{})
	close(stopping)
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerStopChannel(stopping)
	call := func(ctx context.Context) error {
		_, err := c.poll(ctx, "envoy", &heartbeat{}, func() (protocol.FleetResult, error) { return protocol.FleetResult{}, nil })
		return err
	}
	env.RegisterActivity(call)
	_, err := env.ExecuteActivity(call)
	require.ErrorContains(t, err, errStopping.Error())
}
