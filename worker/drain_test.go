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

// polls counts the polls for workflow tasks that nobody has given up.
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

// handingOver is activities whose batch ends when its worker is told to.
type handingOver struct {
	stub
	polls  *polls
	begun  chan struct{}
	atStop int32
}

func (h *handingOver) UpgradeBatch(ctx context.Context, _ protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	close(h.begun)
	<-activity.GetWorkerStopChannel(ctx)
	h.atStop = h.polls.open.Load()
	return protocol.UpgradeBatchResult{Written: []protocol.WrittenPod{{ResourceVersion: "1"}}}, nil
}

// The end of a batch makes a workflow task. Whoever hands it over must not be asking for
// one: the server could give it to a poll that is about to be cut.
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
			f := newFleet(t, server, queue, 1)
			batches := &handingOver{stub: stub{pods: f.pods}, polls: &counted, begun: make(chan struct{})}
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
