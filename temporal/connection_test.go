package temporal

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestConnections(t *testing.T) {
	server := startTemporal(t)
	t.Run("mutual TLS", func(t *testing.T) { testMutualTLS(t, server) })
	t.Run("rotation", func(t *testing.T) { testRotation(t, server) })
	t.Run("unknown namespace", func(t *testing.T) {
		assertCause(t, &Flags{Address: server, Namespace: "absent"}, "the namespace does not exist")
	})
	t.Run("unknown host", func(t *testing.T) {
		cause, _ := ExplainCall(describeDefault(t.Context(), connect(t, &Flags{Address: "nowhere.invalid:7233"})))
		assert.Equal(t, "unknown host", cause)
	})
	t.Run("another protocol", func(t *testing.T) {
		web := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(web.Close)
		assertCause(t, &Flags{Address: web.Listener.Addr().String()}, "the server does not speak gRPC")
	})
	t.Run("no TLS", func(t *testing.T) {
		assertCause(t, &Flags{Address: server, TLS: new(true)}, "the server does not speak TLS")
	})
}

// assertCause calls Temporal three times, and checks that the cause is want each time.
func assertCause(t *testing.T, flags *Flags, want string) {
	t.Helper()
	connected := connect(t, flags)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	namespace := flags.Namespace
	if namespace == "" {
		namespace = DefaultNamespace
	}
	for range 3 {
		err := describeNamespace(ctx, connected, namespace)
		require.Error(t, err)
		cause, remedy := Explain(err)
		assert.Equal(t, want, cause, err.Error())
		assert.NotEmpty(t, remedy)
	}
}

func testMutualTLS(t *testing.T, server string) {
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	proxy := startProxy(t, server, ca.serverConfig(t, serverName, time.Hour, ca))
	files, foreign := newIdentityFiles(t), newIdentityFiles(t)
	files.write(t, ca, ca, "client")
	foreign.write(t, ca, stranger, "foreigner")

	require.NoError(t, describeDefault(t.Context(), connect(t, files.flags(proxy.address))))
	assert.Equal(t, "client", <-proxy.peers)
	unverified := Flags{Address: proxy.address, CertPath: files.cert, KeyPath: files.key, DisableHostVerification: new(true)}
	require.NoError(t, describeDefault(t.Context(), connect(t, &unverified)))

	with := func(change func(*Flags)) *Flags {
		flags := files.flags(proxy.address)
		change(flags)
		return flags
	}
	expired := startProxy(t, server, ca.serverConfig(t, serverName, -time.Hour, nil))
	for _, test := range []struct {
		name  string
		flags *Flags
		want  string
	}{
		{"wrong CA", with(func(f *Flags) { f.CAPath = writeFile(t, "ca.crt", string(stranger.pem)) }), "the server's certificate is signed by an unknown authority"},
		{"the system's CAs", with(func(f *Flags) { f.CAPath = "" }), "the server's certificate is signed by an unknown authority"},
		{"wrong name", with(func(f *Flags) { f.ServerName = "other.example" }), "the server's certificate is for another name"},
		{"the address as name", with(func(f *Flags) { f.ServerName = "" }), "the server's certificate is for another name"},
		{"expired", &Flags{Address: expired.address, CAPath: files.ca, ServerName: serverName}, "the server's certificate is not valid at this time"},
		{"no client certificate", with(func(f *Flags) { f.CertPath, f.KeyPath = "", "" }), "the server wants a client certificate"},
		{"a stranger's certificate", foreign.flags(proxy.address), "the server rejects the client certificate"},
		{"no certificate file", with(func(f *Flags) { f.CertPath = "/absent/tls.crt" }), "unusable file: open /absent/tls.crt: no such file or directory"},
		{"no key file", with(func(f *Flags) { f.KeyPath = "/absent/tls.key" }), "unusable file: open /absent/tls.key: no such file or directory"},
		{"no CA file", with(func(f *Flags) { f.CAPath = "/absent/ca.crt" }), "unusable file: open /absent/ca.crt: no such file or directory"},
		{"an empty CA file", with(func(f *Flags) { f.CAPath = os.DevNull }), "unusable file: CA /dev/null contains no certificate in PEM format"},
		{"another's key", with(func(f *Flags) { f.KeyPath = foreign.key }),
			"unusable file: certificate " + files.cert + " with key " + foreign.key + ": tls: private key does not match public key"},
	} {
		t.Run(test.name, func(t *testing.T) { assertCause(t, test.flags, test.want) })
	}
}

func testRotation(t *testing.T, server string) {
	before, after := newAuthority(t, "before"), newAuthority(t, "after")
	proxy := startProxy(t, server, before.serverConfig(t, serverName, time.Hour, before))
	files := newIdentityFiles(t)
	files.write(t, before, before, "first")
	connected := connect(t, files.flags(proxy.address))
	require.NoError(t, describeDefault(t.Context(), connected))
	assert.Equal(t, "first", <-proxy.peers)

	files.write(t, after, after, "second")
	proxy.rotate(after.serverConfig(t, serverName, time.Hour, after))
	retry(t, func(ctx context.Context) error { return describeDefault(ctx, connected, grpc.WaitForReady(true)) })
	assert.Equal(t, "second", <-proxy.peers)
	assert.Empty(t, proxy.peers)
}

// frontend returns the result of check for DescribeNamespace, and records the headers of the last
// call.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer
	mu      sync.Mutex
	headers metadata.MD
	check   func(metadata.MD) error
}

func (f *frontend) DescribeNamespace(ctx context.Context, _ *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.headers, _ = metadata.FromIncomingContext(ctx)
	return &workflowservice.DescribeNamespaceResponse{}, f.check(f.headers)
}

func (f *frontend) last(key string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.headers.Get(key)
}

func startFrontend(t *testing.T, config *tls.Config, check func(metadata.MD) error) (*frontend, string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &frontend{check: check}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	workflowservice.RegisterWorkflowServiceServer(server, f)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return f, listener.Addr().String()
}

func TestAPIKeysAndHeaders(t *testing.T) {
	ca := newAuthority(t, "ca")
	only := func(key string) func(metadata.MD) error {
		return func(headers metadata.MD) error {
			if got := headers.Get("authorization"); len(got) != 1 || got[0] != "Bearer "+key {
				return status.Error(codes.Unauthenticated, "wrong API key: "+key)
			}
			return nil
		}
	}
	caFile := writeFile(t, "ca.crt", string(ca.pem))
	f, address := startFrontend(t, ca.serverConfig(t, serverName, time.Hour, nil), only("first"))

	flags := &Flags{Address: address, CAPath: caFile, ServerName: serverName, APIKey: "first", Headers: []string{"x_team=sidecars"}}
	require.NoError(t, describeDefault(t.Context(), connect(t, flags)))
	assert.Equal(t, []string{"sidecars"}, f.last("x-team"))

	file := writeFile(t, "key", "first\n")
	connected := connect(t, &Flags{Address: address, CAPath: caFile, ServerName: serverName, APIKeyFile: file})
	require.NoError(t, describeDefault(t.Context(), connected))
	require.NoError(t, os.WriteFile(file, []byte("second"), 0o600))
	err := describeDefault(t.Context(), connected)
	assert.Equal(t, []string{"Bearer second"}, f.last("authorization"), "the file is read again")
	cause, remedy := Explain(err)
	assert.Equal(t, "unauthenticated", cause)
	assert.NotContains(t, cause+remedy, "first")

	require.NoError(t, os.Remove(file))
	cause, _ = Explain(describeDefault(t.Context(), connected))
	assert.Equal(t, "unusable file: open "+file+": no such file or directory", cause)
	require.NoError(t, os.WriteFile(file, []byte(" \n"), 0o600))
	cause, _ = Explain(describeDefault(t.Context(), connected))
	assert.Equal(t, "unusable file: "+file+" contains no API key", cause)

	assertCause(t, &Flags{Address: address, CAPath: caFile, ServerName: serverName}, "unauthenticated")
}

func TestPermissionDenied(t *testing.T) {
	ca := newAuthority(t, "ca")
	_, address := startFrontend(t, ca.serverConfig(t, serverName, time.Hour, nil), func(metadata.MD) error {
		return serviceerror.ToStatus(serviceerror.NewPermissionDenied("Request unauthorized.", "")).Err()
	})
	assertCause(t, &Flags{Address: address, CAPath: writeFile(t, "ca.crt", string(ca.pem)), ServerName: serverName}, "permission denied")
}
