package kube

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// frozen starts a proxy for the server at the address in to, and returns the address of the proxy. The returned
// function makes the proxy drop all bytes, as a broken network does.
func frozen(t *testing.T, to string) (address string, freeze func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	silent := make(chan struct{})
	pass := func(from, into net.Conn) {
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				_ = into.Close()
				return
			}
			select {
			case <-silent:
			default:
				_, _ = into.Write(buffer[:n])
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				return
			}
			go pass(client, server)
			go pass(server, client)
		}
	}()
	return listener.Addr().String(), func() { close(silent) }
}

func TestADeadConnectionIsClosed(t *testing.T) {
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		t.Setenv(name, "") // t.Setenv restores the variable after the test.
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	address, freeze := frozen(t, server.Listener.Addr().String())
	config := &rest.Config{Host: "https://" + address}
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, setConnectionTimeouts(config))
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	require.Equal(t, 2, response.ProtoMajor)
	freeze()
	_, err = io.ReadAll(response.Body)
	require.ErrorContains(t, err, "http2: client connection lost")
}
