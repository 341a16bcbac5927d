package fleet

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// A report adds events to a history, and a query does not. The member therefore sends a query before each
// report.
func TestSpec12_3_AMemberReportsOnlyWhatTheFleetDoesNotKnow(t *testing.T) {
	c := newCluster(t)
	now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	c.Clock = now
	r := &Reporter{Member: c.Member, Cache: c.Live, Self: protocol.FleetMember{UID: "u"}, Log: logr.Discard(), reported: map[types.UID]report{}, Connection: NewConnection(prometheus.NewRegistry())}
	var answer *sdk.QueryWorkflowWithOptionsResponse
	var failure error
	failure = serviceerror.NewNotFound("no run")
	c.fleet.On("QueryWorkflowWithOptions", mock.Anything, mock.Anything).Return(func(context.Context, *sdk.QueryWorkflowWithOptionsRequest) (*sdk.QueryWorkflowWithOptionsResponse, error) {
		return answer, failure
	})
	c.fleet.On("SignalWithStartWorkflow", mock.Anything, "fleet/envoy", protocol.ContentSignal, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil, nil)
	reports := func(want int, _ string) {
		t.Helper()
		sets, err := r.completed(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.reportAll(t.Context(), sets))
		c.fleet.AssertNumberOfCalls(t, "SignalWithStartWorkflow", want)
	}
	knows := func(state protocol.FleetClusterState) {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(&protocol.FleetCluster{Hash: c.hash, State: state})
		require.NoError(t, err)
		answer, failure = &sdk.QueryWorkflowWithOptionsResponse{QueryResult: sdk.NewValue(payloads)}, nil
	}
	reports(1, "first content")
	reports(1, "no time has passed")
	knows(protocol.ClusterPending)
	now.Step(awaitingInterval)
	reports(1, "the fleet knows")
	answer = &sdk.QueryWorkflowWithOptionsResponse{QueryRejected: &query.QueryRejected{}}
	now.Step(awaitingInterval)
	reports(2, "the rollout of the fleet is not open")
	knows(protocol.ClusterSkipped)
	reports(2, "no time has passed")
	c.unanswered.Store("envoy", true)
	reports(3, "the fleet lost the result of an activity")

	// A user of the cluster permits the content.
	c.set.Status.Rollout = &v1alpha1.RolloutStatus{Permit: protocol.Permit{Hash: c.hash}.String()}
	require.NoError(t, c.Live.(client.Client).Status().Update(t.Context(), c.set))
	c.run(&protocol.RolloutStatus{Generation: 3, Permit: &protocol.Permit{Hash: c.hash, By: "ann", Reason: "hotfix"}})
	reports(4, "the permit of a user")
	calls := c.fleet.Calls
	require.Equal(t, &protocol.Approval{By: "ann", Reason: "hotfix"}, calls[len(calls)-1].Arguments.Get(3).(protocol.FleetContent).Own)
	reports(4, "reported")

	// The worker that hosts the rollout encrypts the query result with a key that the member does not have.
	answer, failure = &sdk.QueryWorkflowWithOptionsResponse{QueryResult: sdk.NewValue(&common.Payloads{Payloads: []*common.Payload{{Metadata: map[string][]byte{"encoding": []byte("binary/other")}}}})}, nil
	now.Step(time.Hour)
	sets, err := r.completed(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, r.reportAll(t.Context(), sets), "read the cluster in workflow fleet/envoy")
	assert.Contains(t, r.Connection.Fault(), "see the log of the worker")
}

func TestTheReportOfADeletedSidecarSetIsForgotten(t *testing.T) {
	c := newCluster(t)
	sets, err := (&Reporter{Member: c.Member, Cache: c.Live}).completed(t.Context())
	require.NoError(t, err)
	r := &Reporter{Member: c.Member, reported: map[types.UID]report{"deleted": {}}}
	c.fleet.On("QueryWorkflowWithOptions", mock.Anything, mock.Anything).Return(func(context.Context, *sdk.QueryWorkflowWithOptionsRequest) (*sdk.QueryWorkflowWithOptionsResponse, error) {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(&protocol.FleetCluster{Hash: c.hash, State: protocol.ClusterPending})
		return &sdk.QueryWorkflowWithOptionsResponse{QueryResult: sdk.NewValue(payloads)}, err
	})
	require.NoError(t, r.reportAll(t.Context(), sets))
	assert.Equal(t, []types.UID{"1"}, slices.Collect(maps.Keys(r.reported)))
}

// The fleet skips a member that does not respond. A skipped member receives no permit until the member reports
// the content again. The fleet may also skip the member shortly after the connection is restored.
func TestSpec12_3_AMemberThatReturnsAsksWhetherItWasSkipped(t *testing.T) {
	away := serviceerror.NewUnavailable("connection refused")
	for name, absent := range map[string]func(turn func(err error, reports int), now *clocktesting.FakeClock){
		"without a connection": func(turn func(error, int), now *clocktesting.FakeClock) {
			now.Step(checkInterval)
			turn(away, 1)
			now.Step(checkInterval)
		},
		"frozen": func(_ func(error, int), now *clocktesting.FakeClock) { now.Step(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
			c.Clock = now
			r := &Reporter{
				Member: c.Member, Cache: c.Live, Self: protocol.FleetMember{UID: "u"}, Log: logr.Discard(),
				reported: map[types.UID]report{}, Connection: NewConnection(prometheus.NewRegistry()),
			}
			state := protocol.ClusterPending
			var failure error
			c.fleet.On("DescribeTaskQueue", mock.Anything, mock.Anything, mock.Anything).Return(func(context.Context, string, enums.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
				return nil, failure
			})
			c.fleet.On("QueryWorkflowWithOptions", mock.Anything, mock.Anything).Return(func(context.Context, *sdk.QueryWorkflowWithOptionsRequest) (*sdk.QueryWorkflowWithOptionsResponse, error) {
				payloads, err := converter.GetDefaultDataConverter().ToPayloads(&protocol.FleetCluster{Hash: c.hash, State: state})
				require.NoError(t, err)
				return &sdk.QueryWorkflowWithOptionsResponse{QueryResult: sdk.NewValue(payloads)}, nil
			})
			c.fleet.On("SignalWithStartWorkflow", mock.Anything, "fleet/envoy", protocol.ContentSignal, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil, nil)
			reported := 0
			turn := func(err error, want int) {
				t.Helper()
				failure, r.failed = err, false
				r.begin()
				r.check(t.Context())
				sets, listed := r.completed(t.Context())
				require.NoError(t, listed)
				require.NoError(t, r.reportAll(t.Context(), sets))
				r.endedAt = now.Now()
				c.fleet.AssertNumberOfCalls(t, "QueryWorkflowWithOptions", want)
				c.fleet.AssertNumberOfCalls(t, "SignalWithStartWorkflow", reported)
			}
			turn(nil, 1)
			now.Step(checkInterval)
			turn(nil, 1)
			absent(turn, now)
			turn(nil, 2) // the fleet has not skipped the member yet
			now.Step(returnedInterval)
			state, reported = protocol.ClusterSkipped, 1
			turn(nil, 3)
			state = protocol.ClusterPending
			for _, asked := range []int{3, 4, 4, 4, 4, 4} { // the member asks for one minute, and then every five minutes
				now.Step(checkInterval)
				turn(nil, asked)
			}
		})
	}
}

// An iteration of Run with many SidecarSets takes a long time. If a long iteration counted as a suspension of the
// process, the member would query the fleet about all SidecarSets in each iteration.
func TestSpec12_3_ASlowTurnIsNoFreeze(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	r := &Reporter{Member: &Member{Clock: now}}
	for range 3 {
		r.begin()
		now.Step(time.Minute) // the duration of the iteration
		r.endedAt = now.Now()
		now.Step(reportInterval)
	}
	require.Zero(t, r.returnedAt)
	now.Step(time.Minute)
	r.begin()
	require.Equal(t, now.Now(), r.returnedAt)
}

// The cache of a new process may contain older SidecarSets than the API server.
func TestSpec12_3_AStaleCacheReportsNothing(t *testing.T) {
	c := newCluster(t)
	c.fleet.On("QueryWorkflowWithOptions", mock.Anything, mock.Anything).Return(nil, serviceerror.NewNotFound("no workflow"))
	c.fleet.On("SignalWithStartWorkflow", mock.Anything, "fleet/envoy", protocol.ContentSignal, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil, nil)
	r := &Reporter{
		Member: c.Member, Cache: c.Live, Self: protocol.FleetMember{UID: "u"}, Log: logr.Discard(),
		reported: map[types.UID]report{}, Connection: NewConnection(prometheus.NewRegistry()),
	}
	sets, err := r.completed(t.Context())
	require.NoError(t, err)
	for _, stale := range []func(*v1alpha1.SidecarSet){
		func(set *v1alpha1.SidecarSet) { set.Generation-- },
		func(set *v1alpha1.SidecarSet) { set.UID = "0" },
		func(set *v1alpha1.SidecarSet) { set.Name = "deleted" },
		func(set *v1alpha1.SidecarSet) {
			set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Hash: c.hash, ResourceVersion: "1"}}
		},
	} {
		old := sets[0].DeepCopy()
		stale(old)
		r.unanswered.Store(old.Name, true)
		require.NoError(t, r.report(t.Context(), old))
		_, unanswered := r.unanswered.Load(old.Name)
		assert.True(t, unanswered, "the next report asks again")
	}
	c.fleet.AssertNumberOfCalls(t, "SignalWithStartWorkflow", 0)
	require.NoError(t, r.report(t.Context(), sets[0]))
	c.fleet.AssertNumberOfCalls(t, "SignalWithStartWorkflow", 1)
}
