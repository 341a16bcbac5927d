package runs

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/temporal"
)

func TestMessagesNameStableCauses(t *testing.T) {
	c := endpoint{address: "temporal:7233", namespace: "sidecars"}
	handshake := "connection error: desc = \"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority\""
	assert.EqualError(t, c.unreachableError(serviceerror.NewUnavailable(handshake)), "Temporal at temporal:7233 does not respond: "+
		"the server's certificate is signed by an unknown authority (set its CA with --temporal-tls-ca-path)")
	assert.EqualError(t, c.unreachableError(serviceerror.NewUnavailable("connect: connection refused")), "Temporal at temporal:7233 does not respond")
	assert.EqualError(t, c.rejectedError(serviceerror.NewPermissionDenied("key abc", "")), "Temporal at temporal:7233, namespace sidecars, rejects rollouts: "+
		"permission denied (check whether the API key or the client certificate has access to this namespace)")
	assert.EqualError(t, c.rejectedError(serviceerror.NewUnimplemented("no")), "Temporal at temporal:7233, namespace sidecars, rejects rollouts: "+
		"no (check that the namespace exists, and that the operator may use the namespace)")
	assert.ErrorContains(t, c.rejectedError(serviceerror.NewInvalidArgument("unknown search attribute X")), "outrigger temporal setup")
}

// rejecting returns one code for the probe, and another code for calls about runs.
type rejecting struct {
	workflowservice.UnimplementedWorkflowServiceServer
	code, runs atomic.Uint32
}

func (r *rejecting) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{}, status.Error(codes.Code(r.code.Load()), "request rejected")
}

func (r *rejecting) DescribeWorkflowExecution(context.Context, *workflowservice.DescribeWorkflowExecutionRequest) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{}, status.Error(codes.Code(r.runs.Load()), "request rejected")
}

// newClientOf returns a client of a server that only consists of frontend. The client has probed the
// server.
func newClientOf(t *testing.T, frontend workflowservice.WorkflowServiceServer, clock clock.Clock) *Client {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, frontend)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	o := temporal.Options{Address: listener.Addr().String(), Namespace: "sidecars"}
	client, err := temporal.NewLazyClient(o, logr.Discard())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	c := NewClient(client, Options{Temporal: o, TaskQueue: "queue", Logger: logr.Discard(), Clock: clock}, NewMetrics(prometheus.NewRegistry()))
	<-c.probeNow
	close(c.probed)
	return c
}

func TestProbeReportsErrorsOfEveryCall(t *testing.T) {
	frontend, clock := &rejecting{}, clocktesting.NewFakeClock(time.Now())
	c := newClientOf(t, frontend, clock)

	frontend.code.Store(uint32(codes.InvalidArgument))
	c.probe(t.Context())
	require.NoError(t, c.AwaitProbe(t.Context()), "the start of a rollout shows it better")
	for code, cause := range map[codes.Code]string{codes.PermissionDenied: "permission denied", codes.Unauthenticated: "unauthenticated"} {
		frontend.code.Store(uint32(code))
		c.probe(t.Context())
		require.ErrorContains(t, c.AwaitProbe(t.Context()), "rejects rollouts: "+cause+" (")
	}
	assert.Zero(t, gauge(t, c.metrics.available))
	frontend.code.Store(uint32(codes.OK))
	clock.Step(rejectionTTL + time.Second)
	c.probe(t.Context())
	require.NoError(t, c.AwaitProbe(t.Context()))
	assert.Equal(t, 1.0, gauge(t, c.metrics.available))
}

// A slow shard of Temporal or a busy run affects only some calls.
func TestSpec8_OneUnansweredCallDoesNotMakeTemporalUnavailable(t *testing.T) {
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Unavailable} {
		frontend := &rejecting{}
		c := newClientOf(t, frontend, clocktesting.NewFakeClock(time.Now()))
		frontend.runs.Store(uint32(code))
		_, err := c.NewestRun(t.Context(), protocol.SetReference{Name: "slow", UID: "1"})
		require.True(t, temporal.IsUnreachable(err), "%v", err)
		require.NoError(t, c.AwaitProbe(t.Context()), code)
		<-c.probeNow
		c.probe(t.Context())
		require.NoError(t, c.AwaitProbe(t.Context()), code)
		assert.Empty(t, c.Changes, code)
	}
}

func TestSpec8_TemporalIsUnavailableOnceItsProbeFails(t *testing.T) {
	frontend := &rejecting{}
	c := newClientOf(t, frontend, clocktesting.NewFakeClock(time.Now()))
	frontend.code.Store(uint32(codes.Unavailable))
	c.probe(t.Context())
	require.Error(t, c.AwaitProbe(t.Context()))
	assert.Empty(t, c.probeNow, "the next probe is made after a pause")

	frontend.code.Store(uint32(codes.OK))
	c.probe(t.Context())
	require.NoError(t, c.AwaitProbe(t.Context()))
	frontend.code.Store(uint32(codes.DeadlineExceeded))
	c.probe(t.Context())
	require.NoError(t, c.AwaitProbe(t.Context()), "one slow probe is no outage")
	<-c.probeNow
	c.probe(t.Context())
	require.Error(t, c.AwaitProbe(t.Context()))
	assert.Empty(t, c.probeNow)
}

// While Temporal is slow, probes may time out although other calls are answered.
func TestSpec8_LateProbesWhileCallsAreAnsweredAreNoOutage(t *testing.T) {
	frontend := &rejecting{}
	c := newClientOf(t, frontend, clocktesting.NewFakeClock(time.Now()))
	frontend.code.Store(uint32(codes.DeadlineExceeded))
	for range 3 {
		c.probe(t.Context())
		_, err := c.NewestRun(t.Context(), protocol.SetReference{Name: "one", UID: "1"})
		require.NoError(t, err)
		require.NoError(t, c.AwaitProbe(t.Context()))
	}
}

func gauge(t *testing.T, of prometheus.Gauge) float64 {
	var read dto.Metric
	require.NoError(t, of.Write(&read))
	return read.GetGauge().GetValue()
}
