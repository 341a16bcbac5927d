package temporal

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// proxied is a TLSProxy that runs until the test ends.
type proxied struct {
	*TLSProxy
	stop func()

	mu   sync.Mutex
	logs []string
}

func startTLSProxy(t *testing.T, server string, files identityFiles) *proxied {
	p := &proxied{TLSProxy: &TLSProxy{Address: freeAddress(t), Server: server, CertFile: files.cert, KeyFile: files.key, CAFile: files.ca}}
	p.Log = funcr.New(func(_, args string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.logs = append(p.logs, args)
	}, funcr.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(p.stop)
	return p
}

func (p *proxied) logged() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs
}

// newProxyFiles returns the files of a proxy, and the authority that signs the certificates of the clients.
func newProxyFiles(t *testing.T) (identityFiles, *authority) {
	ca, files := newAuthority(t, "ca"), newIdentityFiles(t)
	files.write(t, ca, ca, serverName)
	return files, ca
}

// The Secret of the chart contains one certificate, which both the proxy and the clients present.
func TestTheTLSProxyAcceptsClientsOfItsCA(t *testing.T) {
	files, _ := newProxyFiles(t)
	p := startTLSProxy(t, startTemporal(t), files)
	connected := connect(t, files.flags(p.Address))
	retry(t, func(ctx context.Context) error { return describeDefault(ctx, connected) })

	stranger, foreign := newAuthority(t, "stranger"), newIdentityFiles(t)
	foreign.write(t, stranger, stranger, serverName)
	foreign.ca = files.ca
	anonymous := files.flags(p.Address)
	anonymous.CertPath, anonymous.KeyPath = "", ""
	for want, flags := range map[string]*Flags{
		"the server wants a client certificate":     anonymous,
		"the server rejects the client certificate": foreign.flags(p.Address),
	} {
		assertCause(t, flags, want)
	}
	require.Error(t, describeDefault(t.Context(), connect(t, &Flags{Address: p.Address})), "no TLS")

	// New connections use replaced files. While a file is incomplete, the proxy rejects new connections.
	next := newAuthority(t, "next")
	require.NoError(t, os.WriteFile(files.key, nil, 0o600))
	require.Error(t, describeDefault(t.Context(), connect(t, files.flags(p.Address))))
	files.write(t, next, next, serverName)
	require.NoError(t, describeDefault(t.Context(), connect(t, files.flags(p.Address))))
	require.NoError(t, describeDefault(t.Context(), connected), "open connections stay open")
	for _, line := range p.logged() {
		assert.NotContains(t, line, "PRIVATE KEY")
	}

	p.stop()
	require.Error(t, describeDefault(t.Context(), connected), "the end of the proxy closes connections")
}

// TCP probes of the kubelet succeed only if Temporal accepts connections, and log nothing.
func TestTheTLSProxyListensOnceTheServerDoes(t *testing.T) {
	server := freeAddress(t)
	files, ca := newProxyFiles(t)
	p := startTLSProxy(t, server, files)
	_, err := net.Dial("tcp", p.Address)
	require.Error(t, err)

	backend, err := net.Listen("tcp", server)
	require.NoError(t, err)
	t.Cleanup(func() { _ = backend.Close() })
	first, err := backend.Accept()
	require.NoError(t, err)
	require.NoError(t, first.Close())
	probe := func(context.Context) error {
		conn, err := net.Dial("tcp", p.Address)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	retry(t, probe)

	pair, err := tls.X509KeyPair(ca.sign(t, "client", timeout))
	require.NoError(t, err)
	client, err := tls.Dial("tcp", p.Address, &tls.Config{RootCAs: ca.pool(), ServerName: serverName, Certificates: []tls.Certificate{pair}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	conn, err := backend.Accept()
	require.NoError(t, err)
	_, err = conn.Write([]byte("answer"))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	data, err := io.ReadAll(client)
	require.NoError(t, err)
	assert.Equal(t, "answer", string(data), "the end of the server's connection ends the client's")

	require.NoError(t, backend.Close())
	client, err = tls.Dial("tcp", p.Address, &tls.Config{RootCAs: ca.pool(), ServerName: serverName, Certificates: []tls.Certificate{pair}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	retry(t, func(ctx context.Context) error {
		if probe(ctx) == nil {
			return errors.New("the proxy listens without a server")
		}
		return nil
	})
	backend, err = net.Listen("tcp", server)
	require.NoError(t, err)
	t.Cleanup(func() { _ = backend.Close() })
	retry(t, probe)
	p.stop()
	logs := p.logged()
	require.Len(t, logs, 3, logs)
	assert.Contains(t, logs[1], "connect to Temporal")
}

func TestTheTLSProxyNamesAFileThatItCannotUse(t *testing.T) {
	files, _ := newProxyFiles(t)
	for want, proxy := range map[string]TLSProxy{
		"certificate /absent with key " + files.key: {CertFile: "/absent", KeyFile: files.key, CAFile: files.ca},
		"read the CA of clients: open /absent":      {CertFile: files.cert, KeyFile: files.key, CAFile: "/absent"},
		"contains no certificate in PEM format":     {CertFile: files.cert, KeyFile: files.key, CAFile: files.key},
	} {
		require.ErrorContains(t, proxy.Run(t.Context()), want)
	}
}
