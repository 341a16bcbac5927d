package worker

import (
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
)

// A response that is encrypted with an unknown key must not end the process.
func TestSpec12_9_AnAnswerWithAnUnknownKeyIsAnError(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(stream); method != workflowservice.WorkflowService_QueryWorkflow_FullMethodName {
			return stream.SendMsg(&workflowservice.GetSystemInfoResponse{})
		}
		return stream.SendMsg(&workflowservice.QueryWorkflowResponse{QueryResult: &common.Payloads{Payloads: []*common.Payload{{
			Metadata: map[string][]byte{"encoding": []byte("binary/encrypted"), "encryption-key-id": []byte("of-another-cluster")},
		}}}})
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	keys := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(keys, "own"), []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600))
	opened, err := codec.Open(codec.Options{KeyDir: keys, KeyID: "own"})
	require.NoError(t, err)

	h := &host{log: logr.Discard()}
	reader, err := h.newReader(temporal.Options{Address: listener.Addr().String(), Namespace: "default", Codec: opened, HostsWorkflows: true})
	require.NoError(t, err)
	t.Cleanup(reader.Close)
	answer, err := reader.QueryWorkflow(t.Context(), "fleet/envoy", "", "cluster")
	require.NoError(t, err)
	require.ErrorContains(t, answer.Get(new(any)), "of-another-cluster")
}
