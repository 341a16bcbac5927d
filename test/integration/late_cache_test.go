package integration

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

// The cache of one worker has a delay of ten seconds. This worker must not plan before its cache shows the
// writes.
func TestSpec7_5_WorkerWithALateCacheKeepsToMaxUnavailable(t *testing.T) {
	s := newScenario(t, 6, nil)
	_, err := stack.StartRole(s.ctx, "worker-3", "--kubeconfig="+lateKubeconfig(t, "worker-1", "", 10*time.Second))
	require.NoError(t, err)
	for _, name := range workers() {
		require.NoError(t, stack.Stop(name))
	}
	t.Cleanup(func() {
		require.NoError(t, stack.Stop("worker-3"))
		for _, name := range workers() {
			require.NoError(t, stack.StartAgain(context.WithoutCancel(s.ctx), name))
		}
	})
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	require.NoError(t, stack.StartAgain(s.ctx, "worker-1"))
	s.await(observer.Converged(6))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
}

// After an outage of the API server, the watches of pods may recover long before the watches of SidecarSets.
// A pause or a corrected image must take effect before the watches of SidecarSets recover.
func TestTheFenceDoesNotWaitForALateCacheOfSets(t *testing.T) {
	s := newKubeletScenario(t, 48, map[string]string{readyAfter: "2s"}, maxUnavailable(8))
	const lag = 6 * time.Second
	s.onlyWorker("worker-late", "--kubeconfig="+lateKubeconfig(t, "worker-1", "sidecarsets", lag))
	require.NoError(t, stack.Stop(cluster.Operator))
	_, err := stack.StartRole(s.ctx, "operator-late", "--kubeconfig="+lateKubeconfig(t, cluster.Operator, "sidecarsets", lag))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, stack.Stop("operator-late"))
		require.NoError(t, stack.StartAgain(context.WithoutCancel(s.ctx), cluster.Operator))
	})
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 8 })
	s.edit(`[{"op":"replace","path":"/spec/updateStrategy/paused","value":true}]`)
	before := s.watched.Asked("side:v2")
	s.awaitPhase(protocol.PhasePaused)
	// A worker may write pods for two seconds after the pause. In this time, a pod becomes ready at most once, so
	// each slot is used at most once.
	assert.LessOrEqual(t, s.watched.Asked("side:v2")-before, 8, "pods upgraded after the pause")

	before = s.watched.Asked("side:v2")
	s.edit(`[{"op":"replace","path":"/spec/updateStrategy/paused","value":false}]`)
	s.await(func(observer.View) bool { return s.watched.Asked("side:v2") > before })
	s.upgradeTo("side:v3")
	before = s.watched.Asked("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 8 })
	assert.LessOrEqual(t, s.watched.Asked("side:v2")-before, 8, "pods that got the image of a generation that was left")
	s.within(8)
}

// lateKubeconfig returns a kubeconfig of a role with the address of a proxy. The proxy delays the watch
// events of resource, or of all resources if resource is empty.
func lateKubeconfig(t *testing.T, role, resource string, lag time.Duration) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", stack.RoleKubeconfig(role))
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	target, err := url.Parse(config.Host)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = transport, -1
	proxy.ModifyResponse = func(response *http.Response) error {
		if asked := response.Request.URL; asked.Query().Get("watch") != "" && strings.Contains(asked.Path, resource) {
			response.Body = late(response.Body, lag)
		}
		return nil
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.CloseClientConnections)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	written := api.NewConfig()
	written.Clusters["late"] = &api.Cluster{Server: server.URL}
	written.Contexts["late"] = &api.Context{Cluster: "late"}
	written.CurrentContext = "late"
	require.NoError(t, clientcmd.WriteToFile(*written, file))
	require.FileExists(t, file)
	return file
}

// late delays each chunk of a stream by lag.
func late(stream io.ReadCloser, lag time.Duration) io.ReadCloser {
	type chunk struct {
		data []byte
		due  time.Time
	}
	delayed := make(chan chunk, 10_000)
	out, in := io.Pipe()
	go func() {
		defer close(delayed)
		reader := bufio.NewReaderSize(stream, 1<<20)
		for {
			data := make([]byte, 64<<10)
			n, err := reader.Read(data)
			if n > 0 {
				delayed <- chunk{data[:n], time.Now().Add(lag)}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		for next := range delayed {
			<-time.After(time.Until(next.due))
			if _, err := in.Write(next.data); err != nil {
				_ = stream.Close()
			}
		}
		_ = in.Close()
	}()
	return struct {
		io.Reader
		io.Closer
	}{out, closers{out, stream}}
}

type closers []io.Closer

func (c closers) Close() error {
	for _, one := range c {
		_ = one.Close()
	}
	return nil
}
