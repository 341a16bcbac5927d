package activities

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	sdk "go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/devserver"
)

const timeout = 30 * time.Second

// heartbeats counts the heartbeats that the client sends to a server.
type heartbeats struct{ atomic.Int32 }

func (h *heartbeats) intercept(ctx context.Context, method string, request, answer any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := invoke(ctx, method, request, answer, c, options...)
	if strings.HasSuffix(method, "/RecordActivityTaskHeartbeat") {
		h.Add(1)
	}
	return err
}

// startTemporal runs the dev server until the test ends.
func startTemporal(t *testing.T, sent *heartbeats) temporalclient.Client {
	server := devserver.Start(t, "../bin/temporal", testsuite.DevServerOptions{})
	c, err := temporalclient.Dial(temporalclient.Options{
		HostPort: server.FrontendHostPort(), Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: temporalclient.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(sent.intercept)}},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// oneBatch is a workflow that executes one upgrade batch with the activity options of the workflow Rollout.
func oneBatch(ctx sdk.Context, input protocol.UpgradeBatchInput) (result protocol.UpgradeBatchResult, err error) {
	ctx = sdk.WithActivityOptions(ctx, sdk.ActivityOptions{
		StartToCloseTimeout: protocol.UpgradeBatchLimit, HeartbeatTimeout: protocol.HeartbeatTimeout, WaitForCancellation: true,
	})
	err = sdk.ExecuteActivity(ctx, protocol.UpgradeBatchActivity, input).Get(ctx, &result)
	return result, err
}

func TestOneHeartbeatReportsProgressAndReturnsCancellation(t *testing.T) {
	var sent heartbeats
	c := startTemporal(t, &sent)
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a"), webPod("b"))
	w := worker.New(c, "queue", worker.Options{MaxHeartbeatThrottleInterval: heartbeatInterval})
	w.RegisterWorkflow(oneBatch)
	w.RegisterActivity(cluster.UpgradeBatch)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	run, err := c.ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{TaskQueue: "queue"}, oneBatch,
		protocol.UpgradeBatchInput{SidecarSet: webSetReference, Generation: 2, Pods: selectedPods("a"), Queued: selectedPods("b"), Run: "one"})
	require.NoError(t, err)
	pending := func() *workflow.PendingActivityInfo {
		found, err := c.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		if err != nil || len(found.GetPendingActivities()) == 0 {
			return nil
		}
		return found.GetPendingActivities()[0]
	}
	await := func(what string, yes func() bool) {
		t.Helper()
		require.Eventually(t, yes, timeout, time.Millisecond, what)
	}

	// The three timers are for heartbeats, the end of the poll, and the wait after the first check.
	await("the first look", func() bool { return cluster.clock.Waiters() == 3 && cluster.images()["a"] == "side:v2" })
	for n := int32(2); n <= 3; n++ {
		cluster.clock.Step(heartbeatInterval)
		await("a heartbeat", func() bool { return sent.Load() >= n })
	}
	// The first heartbeat is older than the write. The second heartbeat may be older. The server may still
	// process the third heartbeat.
	await("the server to show the progress", func() bool {
		var written int
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(pending().GetHeartbeatDetails(), &written))
		return written == 1
	})

	require.NoError(t, c.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	await("the server to note it", func() bool { return pending().GetState() == enums.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED })
	cluster.clock.Step(heartbeatInterval)
	var result protocol.UpgradeBatchResult
	require.NoError(t, run.Get(t.Context(), &result), "the batch says what it wrote")
	assert.Equal(t, []string{"a"}, writtenNames(result.Written))
	assert.Equal(t, int32(4), sent.Load(), "one heartbeat at the start, and one in each interval")
}
