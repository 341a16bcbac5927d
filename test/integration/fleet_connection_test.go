package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	plugin "github.com/outrigger/outrigger/cli"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/link"
	"github.com/outrigger/outrigger/dev/observer"
	temporaloptions "github.com/outrigger/outrigger/temporal"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener
}

// startDenying starts a server that rejects every call, and returns the address of the server.
func startDenying(t *testing.T, config *tls.Config) string {
	listener := listen(t)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return grpcstatus.Error(codes.PermissionDenied, "Request unauthorized.")
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

// newCertificate returns the TLS configuration of a server on the loopback interface, and the path of the CA
// of the certificate.
func newCertificate(t *testing.T) (config *tls.Config, ca string) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	ca = filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return &tls.Config{Certificates: server.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}, ca
}

// sidecarset runs the plugin as an administrator of the cluster.
func (m *fleetMember) sidecarset(args ...string) string {
	m.t.Helper()
	var out bytes.Buffer
	cmd := plugin.NewCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	cmd.SetArgs(append([]string{
		"--kubeconfig=" + m.cluster.Kubeconfig, "--cache-dir=" + m.t.TempDir(), "--temporal-address=" + stack.TemporalAddress, "--temporal-tls=false",
	}, args...))
	require.NoError(m.t, cmd.ExecuteContext(m.ctx), "%v: %s", args, &out)
	return out.String()
}

// awaitMetric waits until right returns true for the value of a metric of the worker. If reason is not empty,
// the metric has the label value reason.
func (m *fleetMember) awaitMetric(name, reason string, right func(float64) bool) {
	m.t.Helper()
	var url string
	for _, role := range m.cluster.Roles() {
		if role.Name == cluster.Worker {
			url = role.Metrics
		}
	}
	err := wait.PollUntilContextCancel(m.ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		families, err := cluster.Scrape(ctx, url)
		if err != nil {
			return false, err
		}
		for _, metric := range families[name].GetMetric() {
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			if labels := metric.GetLabel(); (len(labels) == 0 || labels[0].GetValue() == reason) && right(value) {
				return true, nil
			}
		}
		return false, nil
	})
	require.NoError(m.t, err, "wait for %s %s", name, reason)
}

func (m *fleetMember) awaitConnected(want float64) {
	m.t.Helper()
	m.awaitMetric("outrigger_fleet_connected", "", func(value float64) bool { return value == want })
}

// awaitFault waits until the metrics and the condition show the cause of a connection failure.
func (m *fleetMember) awaitFault(reason, cause string) {
	m.t.Helper()
	m.awaitMetric("outrigger_fleet_call_failures_total", reason, func(value float64) bool { return value > 0 })
	m.awaitConnected(0)
	// A run without a permit observes a change of the connection within five minutes, and a pause immediately.
	assert.Contains(m.t, m.sidecarset("pause", "edge-proxy", "--reason=lunch"), "paused")
	m.awaitReason(v1alpha1.ReasonPaused)
	assert.Contains(m.t, m.sidecarset("status", "edge-proxy"), "lunch")
	assert.Contains(m.t, m.sidecarset("resume", "edge-proxy"), "resumed")
	err := wait.PollUntilContextCancel(m.ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		progressing := meta.FindStatusCondition(m.awaitReason(v1alpha1.ReasonAwaitingPermit).Status.Conditions, v1alpha1.ConditionProgressing)
		return strings.Contains(progressing.Message, "; the connection to the fleet fails: "+cause), nil
	})
	require.NoError(m.t, err, "wait for the cause %s", cause)
	assert.Contains(m.t, m.sidecarset("status", "edge-proxy"), "the connection to the fleet fails: "+cause)
}

// scaleTo scales the Deployment to n pods, and waits until n pods are ready and updated pods have the content
// of the SidecarSet.
func (m *fleetMember) scaleTo(n int32, updated int) {
	m.t.Helper()
	scale := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
	require.NoError(m.t, m.kube.Patch(m.ctx, deployment("edge", n), scale))
	_, err := m.watched.Await(m.ctx, func(v observer.View) bool { return v.Pods == int(n) && v.Ready == int(n) && v.Updated == updated })
	require.NoError(m.t, err)
}

// The worker starts with a connection that fails. The cluster continues without the fleet, whatever the cause
// of the failure. After the cause is corrected, no process needs a restart.
func TestSpec12_9_AMemberWorksWhileItsConnectionToTheFleetFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	const namespace = "fleet-later"
	t.Cleanup(func() {
		ended := context.WithoutCancel(ctx)
		terminateAll(ended, t, cluster.TemporalNamespace, protocol.WorkflowID("edge-proxy", ""))
		terminateAll(ended, t, namespace, protocol.FleetRegistryID, protocol.FleetWorkflowID("edge-proxy"))
	})
	config, ca := newCertificate(t)
	denying := startDenying(t, config)
	secured, front := link.On(tls.NewListener(listen(t), config), stack.TemporalAddress), link.On(listen(t), stack.TemporalAddress)
	t.Cleanup(secured.Close)
	t.Cleanup(front.Close)
	m, err := startFleetMember(ctx, t, "canary", "--fleet-temporal-address="+front.Address(), "--fleet-temporal-namespace="+namespace, "--fleet-temporal-tls-ca-path="+ca)
	require.NoError(t, err)

	m.awaitReason(v1alpha1.ReasonAwaitingPermit)
	m.awaitFault(temporaloptions.FleetHandshake, "the server does not speak TLS (turn it off with --fleet-temporal-tls=false, or correct the address)")
	m.scaleTo(5, 5)
	assert.Contains(t, m.sidecarset("permit", "edge-proxy", "--reason=the fleet is away"), "permitted")
	m.awaitReason(v1alpha1.ReasonRolloutComplete)
	m.upgradeTo("side:v2")
	m.awaitReason(v1alpha1.ReasonAwaitingPermit)
	m.scaleTo(6, 0)

	front.Redirect(secured.Address())
	m.awaitFault(temporaloptions.FleetNamespace, "the namespace does not exist (correct --fleet-temporal-namespace, or create it: outrigger temporal setup)")
	m.scaleTo(7, 0)
	setup := exec.CommandContext(ctx, filepath.Join(bin, "outrigger"), "temporal", "setup", "--temporal-address="+stack.TemporalAddress, "--temporal-namespace="+namespace)
	out, err := setup.CombinedOutput()
	require.NoError(t, err, "%s", out)
	m.awaitConnected(1)
	smoke := newSmokeGate(t)
	outriggerFleet(ctx, t, strings.ReplaceAll(fleetPolicy, "GATE", smoke.URL), "apply", "-f", "-", "--temporal-namespace="+namespace)
	m.awaitImage("side:v2", 7)
	assert.Equal(t, "canary", protocol.ParsePermit(m.awaitReason(v1alpha1.ReasonRolloutComplete).Status.Rollout.Permit).Stage)

	front.Redirect(denying)
	m.awaitConnected(0)
	m.upgradeTo("side:v3")
	m.awaitReason(v1alpha1.ReasonAwaitingPermit)
	m.awaitFault(temporaloptions.FleetPermission, "permission denied (check whether the API key or the client certificate has access to this namespace)")
	m.scaleTo(8, 0)
	front.Redirect(secured.Address())
	m.awaitConnected(1)
	m.awaitImage("side:v3", 8)
	m.awaitReason(v1alpha1.ReasonRolloutComplete)
}
