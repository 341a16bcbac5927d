package operator

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
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/outrigger/outrigger/temporal"
)

func TestMessagesNameStableCauses(t *testing.T) {
	c := &rolloutClient{address: "temporal:7233", namespace: "sidecars"}
	handshake := "connection error: desc = \"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority\""
	assert.EqualError(t, c.unreachableError(serviceerror.NewUnavailable(handshake)), "Temporal at temporal:7233 does not answer: "+
		"the server's certificate is signed by an unknown authority (name its CA with --temporal-tls-ca-path)")
	assert.EqualError(t, c.unreachableError(serviceerror.NewUnavailable("connect: connection refused")), "Temporal at temporal:7233 does not answer")
	assert.EqualError(t, c.refusedError(serviceerror.NewPermissionDenied("key abc", "")), "Temporal at temporal:7233, namespace sidecars, refuses rollouts: "+
		"permission denied (may the API key or the client certificate use this namespace?)")
	assert.EqualError(t, c.refusedError(serviceerror.NewInvalidArgument("no")), "Temporal at temporal:7233, namespace sidecars, refuses rollouts: "+
		"no (does the namespace exist, and may the operator use it?)")
	assert.ErrorContains(t, c.refusedError(serviceerror.NewInvalidArgument("unknown search attribute X")), "temporal operator search-attribute create")
}

type refusing struct {
	workflowservice.UnimplementedWorkflowServiceServer
	code atomic.Uint32
}

func (r *refusing) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{}, status.Error(codes.Code(r.code.Load()), "request refused")
}

func TestProbeReportsWhatHoldsForEveryCall(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	frontend, server := &refusing{}, grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, frontend)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	var o Options
	o.Temporal, o.Logger = temporal.Options{Address: listener.Addr().String(), Namespace: "sidecars"}, logr.Discard()
	client, err := temporal.NewLazyClient(o.Temporal, logr.Discard())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	metrics, err := newMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	clock := clocktesting.NewFakeClock(time.Now())
	c := newRolloutClient(client, o, "queue", metrics, clock)
	close(c.probed)

	frontend.code.Store(uint32(codes.InvalidArgument))
	c.probe(t.Context())
	require.NoError(t, c.awaitProbe(t.Context()), "the start of a rollout shows it better")
	for code, cause := range map[codes.Code]string{codes.PermissionDenied: "permission denied", codes.Unauthenticated: "unauthenticated"} {
		frontend.code.Store(uint32(code))
		c.probe(t.Context())
		require.ErrorContains(t, c.awaitProbe(t.Context()), "refuses rollouts: "+cause+" (")
	}
	assert.Zero(t, gauge(t, metrics.temporalAvailable))
	frontend.code.Store(uint32(codes.OK))
	clock.Step(2*lastRetry + time.Second)
	c.probe(t.Context())
	require.NoError(t, c.awaitProbe(t.Context()))
	assert.Equal(t, 1.0, gauge(t, metrics.temporalAvailable))
}

func gauge(t *testing.T, of prometheus.Gauge) float64 {
	var read dto.Metric
	require.NoError(t, of.Write(&read))
	return read.GetGauge().GetValue()
}
