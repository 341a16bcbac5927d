package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	sdk "go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/temporal"
)

// The first failure and the recovery of a connection change the metrics and wake the run without a permit.
// Later changes wake the run again only after five minutes.
func TestSpec12_9_AMemberRecordsTheStateOfItsConnection(t *testing.T) {
	c := newCluster(t)
	now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	c.Clock = now
	r := &Reporter{Member: c.Member, Cache: c.Live, Log: logr.Discard(), reported: map[types.UID]report{}, Connection: NewConnection(prometheus.NewRegistry())}
	var failure error
	c.fleet.On("DescribeTaskQueue", mock.Anything, mock.Anything, mock.Anything).Return(func(context.Context, string, enums.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
		return nil, failure
	})
	c.local.On("SignalWorkflow", mock.Anything, protocol.WorkflowID("envoy", "1"), "", protocol.GenerationSignal, protocol.GenerationInput{Generation: 3}).Return(nil)
	turn := func(err error, woken int) {
		t.Helper()
		failure = err
		sets, listed := r.completed(t.Context())
		require.NoError(t, listed)
		r.failed = false
		r.check(t.Context())
		r.tell(t.Context(), sets)
		c.local.AssertNumberOfCalls(t, "SignalWorkflow", woken)
		connected := 1.0
		if r.Connection.Fault() != "" {
			connected = 0
		}
		assert.InDelta(t, connected, testutil.ToFloat64(r.Connection.connected.WithLabelValues()), 0)
	}
	denied := serviceerror.NewPermissionDenied("no", "no")
	turn(nil, 0)
	turn(denied, 0)
	assert.Empty(t, r.Connection.Fault(), "the connection is not checked again immediately")
	now.Step(checkInterval)
	turn(denied, 1)
	assert.Contains(t, r.Connection.Fault(), "permission denied (check ")
	turn(denied, 1)
	turn(nil, 1)
	assert.Empty(t, r.Connection.Fault())
	now.Step(wakeInterval)
	turn(nil, 2)
	assert.InDelta(t, 2, testutil.ToFloat64(r.Connection.failures.WithLabelValues(temporal.FleetPermission)), 0)

	// After a failed report, the member makes no check in the same iteration, because a successful check would
	// hide the failure.
	c.fleet.On("SignalWithStartWorkflow", mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).
		Return(func(context.Context, string, string, any, sdk.StartWorkflowOptions, any, ...any) (sdk.WorkflowRun, error) {
			return nil, denied
		})
	require.Error(t, r.send(t.Context(), protocol.FleetRegistryID, protocol.AnnounceSignal, r.Self, protocol.FleetRegistryWorkflow, protocol.FleetRegistry{}))
	r.check(t.Context())
	assert.Contains(t, r.Connection.Fault(), "permission denied")
}

// With many SidecarSets, a timeout for each of them would delay the next report for minutes.
func TestSpec12_9_AMemberWhoseTemporalDoesNotRespondWakesNoFurtherRun(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		woken int
	}{
		"unavailable": {serviceerror.NewUnavailable("connection refused"), 1},
		"late":        {context.DeadlineExceeded, 1},
		"no run":      {serviceerror.NewNotFound("no run"), 2},
	} {
		cluster := newCluster(t)
		r := &Reporter{Member: cluster.Member, Cache: cluster.Live, Log: logr.Discard(), Connection: NewConnection(prometheus.NewRegistry())}
		r.Connection.record(serviceerror.NewPermissionDenied("no", "no"))
		cluster.local.On("SignalWorkflow", mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(c.err)
		sets, err := r.completed(t.Context())
		require.NoError(t, err)
		r.tell(t.Context(), append(sets, sets...))
		assert.Len(t, cluster.local.Calls, c.woken, name)
	}
}
