package worker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/api/protocol"
)

// polls counts the open polls for workflow tasks.
type polls struct{ open atomic.Int32 }

func (p *polls) intercept(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if method != "/temporal.api.workflowservice.v1.WorkflowService/PollWorkflowTaskQueue" {
		return invoke(ctx, method, request, reply, conn, options...)
	}
	p.open.Add(1)
	given := context.AfterFunc(ctx, func() { p.open.Add(-1) })
	err := invoke(ctx, method, request, reply, conn, options...)
	if given() {
		p.open.Add(-1)
	}
	return err
}

// draining is a stub whose activity UpgradeBatch returns only when the worker stops.
type draining struct {
	stub
	polls  *polls
	begun  chan struct{}
	atStop int32
}

func (h *draining) UpgradeBatch(ctx context.Context, _ protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	close(h.begun)
	<-activity.GetWorkerStopChannel(ctx)
	h.atStop = h.polls.open.Load()
	return protocol.UpgradeBatchResult{Written: []protocol.WrittenPod{{ResourceVersion: "1"}}}, nil
}

// The end of a batch schedules a workflow task. A draining worker must not poll for workflow
// tasks, because the server could dispatch the task to a poll that is being closed.
func TestABatchDrainsOnceNoWorkflowTaskIsPolled(t *testing.T) {
	server := startTemporal(t)
	for queue, lead := range map[string]func(ctx context.Context, upgrade func(context.Context) error) error{
		"each-worker-writes": nil,
		"one-worker-leads":   func(ctx context.Context, upgrade func(context.Context) error) error { return upgrade(ctx) },
	} {
		t.Run(queue, func(t *testing.T) {
			var counted polls
			counting, err := client.Dial(client.Options{
				HostPort: server.FrontendHostPort(), Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
				ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(counted.intercept)}},
			})
			require.NoError(t, err)
			t.Cleanup(counting.Close)
			f := newWorkers(t, server, queue, 1)
			batches := &draining{stub: stub{pods: f.pods}, polls: &counted, begun: make(chan struct{})}
			h := &host{client: counting, options: Options{MaxConcurrentSelects: 10, MaxConcurrentPatches: 10}, taskQueue: f.queue, log: logr.Discard(), activities: batches, lead: lead}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error)
			go func() { ended <- h.run(ctx) }()
			f.roll()
			<-batches.begun
			require.Positive(t, counted.open.Load())
			stop()
			require.NoError(t, <-ended)
			assert.Zero(t, batches.atStop)
		})
	}
}
