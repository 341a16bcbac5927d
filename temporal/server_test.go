package temporal

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/dev/devserver"
)

const timeout = time.Minute

// startTemporal runs the dev server until the test ends, and returns the address of the server.
func startTemporal(t *testing.T) string {
	return devserver.Start(t, "../bin/temporal", testsuite.DevServerOptions{}).FrontendHostPort()
}

func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// connect creates a client as the roles do, without environment variables.
func connect(t *testing.T, flags *Flags) client.Client {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	options, err := flags.Options(variables{})
	require.NoError(t, err)
	connected, err := NewLazyClient(options, logr.Discard())
	require.NoError(t, err)
	t.Cleanup(connected.Close)
	return connected
}

func describeNamespace(ctx context.Context, c client.Client, namespace string, options ...grpc.CallOption) error {
	_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace}, options...)
	return err
}

func describeDefault(ctx context.Context, c client.Client, options ...grpc.CallOption) error {
	return describeNamespace(ctx, c, DefaultNamespace, options...)
}

// retry retries call until call succeeds.
func retry(t *testing.T, call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for {
		err := call(ctx)
		if err == nil {
			return
		}
		require.NoError(t, ctx.Err(), err)
	}
}

// proxy terminates TLS in front of a server.
type proxy struct {
	address string
	// peers receives the name in the certificate of each client.
	peers chan string

	mu     sync.Mutex
	config *tls.Config
	open   []net.Conn
}

func startProxy(t *testing.T, server string, config *tls.Config) *proxy {
	p := &proxy{config: config, peers: make(chan string, 100)}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.config, nil
	}})
	require.NoError(t, err)
	p.address = listener.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(conn.(*tls.Conn), server) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.rotate(nil)
		serving.Wait()
	})
	return p
}

func (p *proxy) serve(conn *tls.Conn, server string) {
	defer conn.Close()
	if conn.Handshake() != nil {
		return
	}
	if certificates := conn.ConnectionState().PeerCertificates; len(certificates) > 0 {
		p.peers <- certificates[0].Subject.CommonName
	}
	backend, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer backend.Close()
	p.mu.Lock()
	p.open = append(p.open, conn, backend)
	p.mu.Unlock()
	go func() {
		_, _ = io.Copy(backend, conn)
		backend.Close()
	}()
	_, _ = io.Copy(conn, backend)
}

// rotate replaces the config for new connections, and closes open connections.
func (p *proxy) rotate(config *tls.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config = config
	for _, conn := range p.open {
		conn.Close()
	}
	p.open = nil
}
