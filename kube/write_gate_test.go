package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// gatedClient returns a function that sends a patch as the roles do, and the number of patches that the API
// server received.
func gatedClient(t *testing.T, answer http.HandlerFunc) (patch func(context.Context) error, received *atomic.Int32) {
	t.Helper()
	received = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			received.Add(1)
			answer(w, r)
			return
		}
		_, _ = fmt.Fprint(w, `{"major":"1","minor":"30"}`)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil,
		`{"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, server.URL), 0o600))
	config, err := Options{Kubeconfig: file, QPS: 100, Burst: 100}.RESTConfig()
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPatch, server.URL, http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}, received
}

func accept(http.ResponseWriter, *http.Request) {}

func allowed() error { return nil }

func TestEveryProcessHasTheWriteGate(t *testing.T) {
	patch, received := gatedClient(t, accept)
	paused := errors.New("paused")
	arrived, err := SendIf(t.Context(), func() error { return paused }, patch)
	require.ErrorIs(t, err, paused)
	assert.False(t, arrived)
	assert.Zero(t, received.Load())
	arrived, err = SendIf(t.Context(), allowed, patch)
	require.NoError(t, err)
	assert.True(t, arrived)
	assert.Equal(t, int32(1), received.Load())
	require.NoError(t, patch(t.Context()), "requests without a guard")
}

func TestARequestThatIsThrottledHasNotArrived(t *testing.T) {
	for code, want := range map[int]bool{http.StatusTooManyRequests: false, http.StatusConflict: true, http.StatusGatewayTimeout: true} {
		patch, _ := gatedClient(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		arrived, err := SendIf(t.Context(), allowed, patch)
		require.NoError(t, err)
		assert.Equal(t, want, arrived, code)
	}
}

func TestARequestOnTheWireIsEndedAlthoughItIsCalledOff(t *testing.T) {
	ctx, callOff := context.WithCancel(t.Context())
	patch, received := gatedClient(t, func(http.ResponseWriter, *http.Request) { callOff() })
	arrived, err := SendIf(ctx, allowed, patch)
	require.NoError(t, err)
	assert.True(t, arrived)
	assert.Equal(t, int32(1), received.Load())
}

func TestARequestThatWaitsInTheClientIsCalledOff(t *testing.T) {
	for name, first := range map[string]func(context.Context, func(context.Context) error){
		"for the rate limiter":  func(context.Context, func(context.Context) error) {},
		"to be tried once more": func(ctx context.Context, patch func(context.Context) error) { assert.NoError(t, patch(ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			patch, received := gatedClient(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "8")
				w.WriteHeader(http.StatusTooManyRequests)
			})
			ctx, callOff := context.WithCancel(t.Context())
			arrived, err := SendIf(ctx, allowed, func(sending context.Context) error {
				first(sending, patch)
				before := received.Load()
				callOff()
				<-sending.Done()
				assert.Equal(t, before, received.Load())
				return sending.Err()
			})
			require.ErrorIs(t, err, context.Canceled)
			assert.False(t, arrived)
		})
	}
}

// The rollout may be paused while a connection is opened, because a handshake may take seconds.
func TestSpec7_1_AWriteIsCheckedAfterItsConnectionIsOpen(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		var paused, written atomic.Int32
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err == nil && len(body) > 0 {
				written.Add(1)
			}
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		transport, ok := server.Client().Transport.(*http.Transport)
		require.True(t, ok)
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			paused.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		client, errPaused := &http.Client{Transport: NewWriteGate(transport)}, errors.New("paused")
		patch := func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodPatch, server.URL, strings.NewReader("{}"))
			require.NoError(t, err)
			response, err := client.Do(request)
			if err == nil {
				err = response.Body.Close()
			}
			return err
		}
		may := func() error {
			if paused.Load() > 0 {
				return errPaused
			}
			return nil
		}
		arrived, err := SendIf(t.Context(), may, patch)
		require.ErrorIs(t, err, errPaused)
		assert.False(t, arrived)

		arrived, err = SendIf(t.Context(), allowed, patch)
		require.NoError(t, err)
		assert.True(t, arrived)
		server.Close()
		assert.Equal(t, int32(1), written.Load())
	}
}
