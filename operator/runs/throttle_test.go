package runs

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/testsuite"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/devserver"
	"github.com/outrigger/outrigger/temporal"
)

// soon is the timeout for changes that happen without further action of the test. tick is the polling
// interval.
const (
	soon = 3 * time.Minute
	tick = 50 * time.Millisecond
)

func TestThrottleLastsLongerEachTime(t *testing.T) {
	var one throttle
	now := time.Unix(1000, 0)
	one.extend(now)
	assert.Equal(t, now.Add(time.Second), one.until)
	assert.False(t, one.reportable(), "once is not reported")
	one.extend(now.Add(time.Millisecond))
	assert.Equal(t, now.Add(time.Second), one.until, "calls under way together count once")
	for _, backoff := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		now = one.until
		one.extend(now)
		assert.Equal(t, now.Add(backoff), one.until)
	}
	assert.True(t, one.reportable())
	one.succeeded(one.until.Add(time.Second))
	assert.True(t, one.reportable(), "one call that passes does not mean that others will")
	one.succeeded(one.until.Add(31 * time.Second))
	assert.Equal(t, throttle{}, one)
}

func TestBusyWorkflowsAreNoThrottle(t *testing.T) {
	assert.False(t, IsThrottled(serviceerror.NewResourceExhausted(enums.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW, "busy")))
	assert.True(t, IsThrottled(serviceerror.NewResourceExhausted(enums.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT, "much")))
	assert.True(t, IsThrottled(fmt.Errorf("x: %w", ThrottledError{})))
	assert.False(t, temporal.IsUnreachable(serviceerror.NewResourceExhausted(enums.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT, "much")))
}

// newClientOn starts a Temporal server with the given dynamic config, and returns a client of the server.
func newClientOn(t *testing.T, settings ...string) *Client {
	var options testsuite.DevServerOptions
	for _, setting := range settings {
		options.ExtraArgs = append(options.ExtraArgs, "--dynamic-config-value", setting)
	}
	return connectTo(t, devserver.Start(t, filepath.Join("..", "..", "bin", "temporal"), options).FrontendHostPort())
}

func connectTo(t *testing.T, address string) *Client {
	o := temporal.Options{Address: address, Namespace: "default"}
	client, err := temporal.NewLazyClient(o, logr.Discard())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return NewClient(client, Options{Temporal: o, TaskQueue: "queue", Logger: logr.Discard(), Clock: clock.RealClock{}}, NewMetrics(prometheus.NewRegistry()))
}

func TestSpec8_AThrottlingTemporalIsDistinguishedFromAnUnreachableOne(t *testing.T) {
	rollouts := newClientOn(t, "frontend.namespaceRPS=2", "frontend.namespaceBurstRatio=1.0")
	require.NoError(t, rollouts.registerAttributes(t.Context()))
	set := protocol.SetReference{Name: "busy", UID: "uid"}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for range 4 {
			_, err := rollouts.StartOrSignal(t.Context(), Start{SidecarSet: set, Generation: protocol.GenerationInput{Generation: 1}})
			if err != nil {
				assert.True(c, IsThrottled(err), err)
			}
		}
		rollouts.connection.mu.Lock()
		defer rollouts.connection.mu.Unlock()
		assert.Equal(c, ThrottledError{rollouts.address, "default"}, rollouts.unavailable())
	}, soon, tick)
	assert.False(t, rollouts.Unreachable())
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := rollouts.StartOrSignal(t.Context(), Start{SidecarSet: set, Generation: protocol.GenerationInput{Generation: 1}})
		assert.NoError(c, err)
	}, soon, tick)
}

// throttlingFrontend starts a server that accepts connections, but rejects each call until the test ends.
// throttlingFrontend returns the address of the server.
func throttlingFrontend(t *testing.T, cause enums.ResourceExhaustedCause) string {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(stream); method == workflowservice.WorkflowService_GetSystemInfo_FullMethodName {
			return stream.SendMsg(&workflowservice.GetSystemInfoResponse{})
		}
		return serviceerror.ToStatus(serviceerror.NewResourceExhausted(cause, "limit exceeded")).Err()
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func TestSpec8_AThrottledUpdateIsDistinguishedFromMissingWorkers(t *testing.T) {
	rollouts := connectTo(t, throttlingFrontend(t, enums.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT))
	set := protocol.SetReference{Name: "busy", UID: "uid"}
	throttled := ThrottledError{rollouts.address, "default"}
	_, err := rollouts.Update(t.Context(), set, protocol.PauseUpdate, "id", protocol.Pause{})
	require.ErrorIs(t, err, throttled)
	require.Positive(t, rollouts.Throttled())
	_, err = rollouts.AnswerTo(t.Context(), set, "id")
	require.ErrorIs(t, err, throttled, "no call is made during the backoff")

	_, err = connectTo(t, rollouts.address).Status(t.Context(), set)
	require.True(t, IsThrottled(err), err)

	// Without workers, a run reaches its limit of concurrent updates. This limit does not concern other runs.
	rollouts = connectTo(t, throttlingFrontend(t, enums.RESOURCE_EXHAUSTED_CAUSE_CONCURRENT_LIMIT))
	_, err = rollouts.Update(t.Context(), set, protocol.PauseUpdate, "id", protocol.Pause{})
	require.ErrorIs(t, err, ErrUnanswered)
	require.LessOrEqual(t, rollouts.Throttled(), time.Duration(0))
}

// throttlingLists rejects the calls that list runs, and counts these calls.
type throttlingLists struct {
	workflowservice.UnimplementedWorkflowServiceServer
	lists atomic.Int32
}

func (l *throttlingLists) ListWorkflowExecutions(context.Context, *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	l.lists.Add(1)
	return nil, serviceerror.ToStatus(serviceerror.NewResourceExhausted(enums.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT, "limit exceeded")).Err()
}

func (l *throttlingLists) SignalWorkflowExecution(context.Context, *workflowservice.SignalWorkflowExecutionRequest) (*workflowservice.SignalWorkflowExecutionResponse, error) {
	return &workflowservice.SignalWorkflowExecutionResponse{}, nil
}

func TestSpec8_5_AThrottledListDelaysNoOtherCall(t *testing.T) {
	frontend, clock := &throttlingLists{}, clocktesting.NewFakeClock(time.Now())
	rollouts := newClientOf(t, frontend, clock)
	for range 3 {
		_, err := rollouts.Workers(t.Context())
		require.True(t, IsThrottled(err), err)
		require.LessOrEqual(t, rollouts.Throttled(), time.Duration(0))
	}
	assert.Equal(t, int32(1), frontend.lists.Load())
	delivered, err := rollouts.Signal(t.Context(), protocol.SetReference{Name: "one", UID: "1"}, protocol.WakeSignal, nil)
	require.NoError(t, err)
	assert.True(t, delivered)
	clock.Step(selectInterval)
	_, err = rollouts.Workers(t.Context())
	require.True(t, IsThrottled(err), err)
	assert.Equal(t, int32(2), frontend.lists.Load())
}
