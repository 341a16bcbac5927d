package manifests

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger/outrigger/dev/cluster"
)

// service simulates the Service. Nodes observe endpoints with a delay, so service routes new connections to
// the replicas that were ready routeDelay ago.
type service struct {
	t      *testing.T
	client kubernetes.Interface
	port   int

	// Only look accesses published and publishedAt.
	published   bool
	publishedAt time.Time

	mu       sync.Mutex
	replicas map[string]cluster.Role
	routed   []string
}

// routeDelay is the delay after which nodes observe a change of endpoints.
const routeDelay = time.Second

func newService(t *testing.T, client kubernetes.Interface) *service {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &service{t: t, client: client, port: listener.Addr().(*net.TCPAddr).Port, replicas: map[string]cluster.Role{}}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { wait.UntilWithContext(ctx, s.look, 50*time.Millisecond) })
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go s.pass(client)
		}
	})
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		all.Wait()
	})
	return s
}

// look publishes the current endpoints, and routes to the endpoints that were current routeDelay ago.
func (s *service) look(ctx context.Context) {
	s.mu.Lock()
	replicas := s.replicas
	s.mu.Unlock()
	var ready []string
	for _, role := range replicas {
		if isReady(role) {
			at, err := url.Parse(role.WebhookURL)
			assert.NoError(s.t, err)
			ready = append(ready, "127.0.0.1:"+at.Port())
		}
	}
	slices.Sort(ready)
	time.AfterFunc(routeDelay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.routed = ready
	})
	// look writes the EndpointSlice every second, because a test may delete the EndpointSlice with the
	// namespace.
	if s.published != (len(ready) > 0) || time.Since(s.publishedAt) > time.Second {
		s.publish(ctx, len(ready) > 0)
	}
}

func isReady(role cluster.Role) bool {
	response, err := http.Get(role.Health + "/readyz")
	return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

func (s *service) publish(ctx context.Context, ready bool) {
	slices := s.client.DiscoveryV1().EndpointSlices(cluster.SystemNamespace)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "webhook", Labels: map[string]string{discoveryv1.LabelServiceName: "outrigger-webhook"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	_, err := slices.Update(ctx, slice, metav1.UpdateOptions{})
	if err != nil {
		_, err = slices.Create(ctx, slice, metav1.CreateOptions{})
	}
	if err == nil {
		s.published, s.publishedAt = ready, time.Now()
	}
}

func (s *service) pass(client net.Conn) {
	defer client.Close()
	s.mu.Lock()
	routed := s.routed
	s.mu.Unlock()
	if len(routed) == 0 {
		return
	}
	replica, err := net.Dial("tcp", routed[rand.IntN(len(routed))])
	if err != nil {
		return
	}
	defer replica.Close()
	go func() {
		_, _ = io.Copy(replica, client)
		_ = replica.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, replica)
}

// start starts a replica. After the replica becomes unready, the replica serves for much longer than
// routeDelay, because an overloaded machine may read the readiness late.
func (s *service) start(c *cluster.Cluster, name string, flags ...string) {
	s.t.Helper()
	role, err := c.StartRole(s.t.Context(), name, append(flags, "--url=", "--shutdown-delay-duration=10s")...)
	require.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	replicas := map[string]cluster.Role{name: role}
	for name, role := range s.replicas {
		replicas[name] = role
	}
	s.replicas = replicas
}

// The API server calls the webhook through the Service, as in a real cluster. The test creates pods
// continuously.
func TestNoPodIsRejectedByAFirstInstallationAndRollingRestarts(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), Nodes: 1, WithoutTemporal: true})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	client := clientOf(t, c)
	service := newService(t, client)
	kubectl(t, c, `
apiVersion: v1
kind: Service
metadata: {name: outrigger-webhook, namespace: kruise-system}
spec: {type: ExternalName, externalName: localhost}
`, "apply", "-f", "-")
	pods := newStream(t, client, 4)
	shipped := kubectl(t, c, "", "kustomize", "../../config/webhook")
	kubectl(t, c, strings.ReplaceAll(shipped, "port: 443", fmt.Sprintf("port: %d", service.port)), "apply", "-f", "-")
	for i := range 2 {
		service.start(c, fmt.Sprintf("webhook-%d", i))
	}
	pods.await(t, "the first set to be taken", func() bool {
		_, err := tryKubectl(t, c, `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: stream}
spec: {selector: {matchLabels: {app: stream}}, containers: [{name: side, image: "side:v1"}]}
`, "apply", "-f", "-")
		return err == nil
	})
	// The caches of the replicas observe the SidecarSet at different times.
	pods.await(t, "pods to be injected", func() bool { return pods.injected.Load() > 500 })
	before, late := pods.injected.Load(), pods.late.Load()
	for i := 2; i < 5; i++ {
		service.start(c, fmt.Sprintf("webhook-%d", i))
		require.NoError(t, c.Stop(fmt.Sprintf("webhook-%d", i-2)))
	}
	pods.await(t, "pods to be injected by other replicas", func() bool { return pods.injected.Load() > before+500 })
	require.NoError(t, pods.end())
	t.Logf("%d pods were created, 0 rejected; %d got their sidecar, %d did not after the first had", pods.created.Load(), pods.injected.Load(), pods.late.Load())
	assert.Equal(t, late, pods.late.Load(), "pods without a sidecar since the restarts began")
}
