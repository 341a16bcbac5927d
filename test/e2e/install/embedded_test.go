//go:build e2e

package install

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The volumes of the node are directories. The server runs without root.
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

// runs returns the ids of the runs in the embedded Temporal.
func (s *site) runs() string {
	s.t.Helper()
	address := s.jsonpath("pod outrigger-temporal-0 -n kruise-system", "{.status.podIP}") + ":7233"
	return s.run("temporal", "workflow", "list", "--address="+address, "--fields=WorkflowId,RunId,Status", "--limit=50")
}

// restart deletes the pod of Temporal, and waits for the next one.
func (s *site) restart() {
	s.t.Helper()
	s.run("kubectl", "delete", "pod", "outrigger-temporal-0", "-n", "kruise-system")
	s.run("kubectl", "rollout", "status", "statefulset/outrigger-temporal", "-n", "kruise-system", "--timeout=3m")
}

// The history outlives the pod of the server, and rollouts outlive the history.
func TestTheEmbeddedTemporalRollsOut(t *testing.T) {
	s := newSite(t)
	s.volume("first")
	s.run("helm", "install", "outrigger", root+"/charts/outrigger", "--namespace=kruise-system", "--create-namespace",
		"--set=temporal.embedded.enabled=true,temporal.embedded.image="+temporal+",temporal.embedded.storage.storageClassName=directory", "--wait", "--timeout=4m")
	s.run("helm", "test", "outrigger", "--namespace=kruise-system", "--timeout=2m")
	s.works()
	before := s.runs()
	require.Contains(t, before, "sidecarset/installed/")

	s.restart()
	assert.Equal(t, before, s.runs(), "the runs are those of the former pod")
	s.upgrade(v1)

	s.volume("second")
	s.run("kubectl", "delete", "persistentvolumeclaim", "history-outrigger-temporal-0", "-n", "kruise-system", "--wait=false")
	s.restart()
	assert.NotContains(t, s.runs(), "sidecarset/installed/", "the volume is new")
	s.upgrade(v2)
	require.Contains(t, s.runs(), "sidecarset/installed/")

	s.run("helm", "uninstall", "outrigger", "--namespace=kruise-system", "--wait", "--timeout=4m")
	assert.Contains(t, s.run("kubectl", "get", "persistentvolumeclaims", "-n", "kruise-system", "-o", "name"), "history-outrigger-temporal-0")
	s.run("kubectl", "delete", "persistentvolumeclaims", "--all", "-n", "kruise-system", "--wait=false")
	s.isGone()
	assert.Empty(t, strings.TrimSpace(s.run("kubectl", "get", "statefulsets", "-n", "kruise-system", "-o", "name")))
}
