//go:build e2e

package install

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/link"
)

const (
	// embeddedAddress is the address at which pods reach the embedded Temporal.
	embeddedAddress = cluster.APIServerAddress + ":7234"
	embeddedName    = "outrigger-temporal.kruise-system"
)

// volume creates a PersistentVolume in a directory of the node. Every user may write into the directory,
// because the server does not run as root.
func (s *site) volume(name string) {
	s.t.Helper()
	directory := s.t.TempDir()
	require.NoError(s.t, os.Chmod(directory, 0o777))
	s.apply(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: ` + name + `}
spec:
  capacity: {storage: 2Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: directory
  hostPath: {path: ` + directory + `}
`)
	s.t.Cleanup(func() {
		_, _ = s.try("kubectl", "delete", "persistentvolume", name, "--ignore-not-found", "--wait=false")
	})
}

// address returns the address at which the pod of Temporal accepts TLS connections.
func (s *site) address() string {
	s.t.Helper()
	return s.podIP() + ":7234"
}

func (s *site) podIP() string {
	s.t.Helper()
	return s.jsonpath("pod outrigger-temporal-0 -n kruise-system", "{.status.podIP}")
}

// list authenticates with the certificate of the roles, and returns the runs of rollouts.
func (s *site) list() string {
	s.t.Helper()
	directory := s.t.TempDir()
	args := []string{"workflow", "list", "--address=" + s.address(), "--query=WorkflowType='Rollout'", "-o=json", "--tls-server-name=" + embeddedName}
	for flag, key := range map[string]string{"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"} {
		encoded := s.jsonpath("secret outrigger-temporal-tls -n kruise-system", "{.data."+strings.ReplaceAll(key, ".", `\.`)+"}")
		data, err := base64.StdEncoding.DecodeString(encoded)
		require.NoError(s.t, err)
		require.NoError(s.t, os.WriteFile(filepath.Join(directory, key), data, 0o600))
		args = append(args, "--tls-"+flag+"-path="+filepath.Join(directory, key))
	}
	return s.run("temporal", args...)
}

// needsCertificate asserts that clients in the network reach Temporal only with TLS and a client certificate,
// and that clients of a forwarded port need neither TLS nor a client certificate.
func (s *site) needsCertificate() {
	s.t.Helper()
	for _, tls := range []string{"--tls=false", "--tls-disable-host-verification"} {
		out, err := s.try("temporal", "workflow", "list", "--address="+s.address(), tls)
		require.Error(s.t, err, out)
	}
	for _, port := range []string{"7233", "8233"} {
		_, err := net.Dial("tcp", s.podIP()+":"+port)
		require.ErrorIs(s.t, err, syscall.ECONNREFUSED, port)
	}
	forward := exec.CommandContext(s.ctx, bin+"/kubectl", "port-forward", "pod/outrigger-temporal-0", "-n", "kruise-system", ":7233")
	forward.Env = append(os.Environ(), "KUBECONFIG="+node.Kubeconfig)
	var stderr strings.Builder
	forward.Stderr = &stderr
	stdout, err := forward.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, forward.Start())
	defer func() {
		_ = forward.Process.Kill()
		_ = forward.Wait()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(s.t, err, stderr.String())
	address := strings.Fields(strings.TrimPrefix(line, "Forwarding from "))[0]
	assert.Contains(s.t, s.run("temporal", "workflow", "list", "--address="+address), "Rollout")
}

// runs returns the sorted run IDs of rollouts in the embedded Temporal.
func (s *site) runs() []string {
	s.t.Helper()
	out := s.list()
	var listed []struct{ Execution struct{ RunID string } }
	require.NoError(s.t, json.Unmarshal([]byte(out), &listed), out)
	ids := make([]string, len(listed))
	for i := range listed {
		ids[i] = listed[i].Execution.RunID
	}
	slices.Sort(ids)
	return ids
}

// restart deletes the pod of Temporal, waits until the next pod is ready, and redirects service to the next
// pod.
func (s *site) restart(service *link.Link) {
	s.t.Helper()
	s.run("kubectl", "delete", "pod", "outrigger-temporal-0", "-n", "kruise-system")
	s.run("kubectl", "rollout", "status", "statefulset/outrigger-temporal", "-n", "kruise-system", "--timeout=3m")
	service.Redirect(s.address())
}

// The history is kept after the pod of the server is deleted. A rollout continues even if the history is
// lost.
func TestTheEmbeddedTemporalRollsOut(t *testing.T) {
	s := newSite(t)
	s.volume("first")
	// No proxy routes Services on this node, so a link replaces the Service.
	service, err := link.Open(s.ctx, embeddedAddress, "127.0.0.1:1")
	require.NoError(t, err)
	t.Cleanup(service.Close)
	s.run("helm", "install", "outrigger", root+"/charts/outrigger", "--namespace=kruise-system", "--create-namespace",
		"--set=temporal.embedded.enabled=true,temporal.embedded.image="+temporal+",temporal.embedded.storage.storageClassName=directory",
		"--set=temporal.env.TEMPORAL_ADDRESS="+embeddedAddress+",temporal.tls.serverName="+embeddedName, "--wait", "--timeout=4m")
	service.Redirect(s.address())
	s.works()
	s.run("helm", "test", "outrigger", "--namespace=kruise-system", "--timeout=2m")
	before := s.runs()
	require.NotEmpty(t, before)
	s.needsCertificate()

	s.restart(service)
	assert.Equal(t, before, s.runs(), "the runs are those of the former pod")
	s.upgrade(v1)

	s.volume("second")
	s.run("kubectl", "delete", "persistentvolumeclaim", "history-outrigger-temporal-0", "-n", "kruise-system", "--wait=false")
	s.restart(service)
	for _, run := range before {
		assert.NotContains(t, s.runs(), run, "the volume is new")
	}
	s.upgrade(v2)
	assert.NotEmpty(t, s.runs())

	s.run("helm", "uninstall", "outrigger", "--namespace=kruise-system", "--wait", "--timeout=4m")
	assert.Contains(t, s.run("kubectl", "get", "persistentvolumeclaims", "-n", "kruise-system", "-o", "name"), "history-outrigger-temporal-0")
	s.run("kubectl", "delete", "persistentvolumeclaims", "--all", "-n", "kruise-system", "--wait=false")
	s.isGone()
	assert.Empty(t, strings.TrimSpace(s.run("kubectl", "get", "statefulsets", "-n", "kruise-system", "-o", "name")))
}
