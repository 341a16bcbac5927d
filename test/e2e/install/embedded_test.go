//go:build e2e

package install

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/link"
)

// embeddedAddress is the address of the embedded Temporal for pods.
const embeddedAddress = cluster.APIServerAddress + ":7234"

// volume creates a PersistentVolume that is a directory of the node. The server, which does not run as root, may
// write into it.
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

// address returns the address of the pod of Temporal.
func (s *site) address() string {
	s.t.Helper()
	return s.jsonpath("pod outrigger-temporal-0 -n kruise-system", "{.status.podIP}") + ":7233"
}

// runs returns the sorted ids of the runs of rollouts in the embedded Temporal.
func (s *site) runs() []string {
	s.t.Helper()
	out := s.run("temporal", "workflow", "list", "--address="+s.address(), "--query=WorkflowType='Rollout'", "-o=json")
	var listed []struct{ Execution struct{ RunID string } }
	require.NoError(s.t, json.Unmarshal([]byte(out), &listed), out)
	ids := make([]string, len(listed))
	for i := range listed {
		ids[i] = listed[i].Execution.RunID
	}
	slices.Sort(ids)
	return ids
}

// restart deletes the pod of Temporal, and waits for the next one.
func (s *site) restart(service *link.Link) {
	s.t.Helper()
	s.run("kubectl", "delete", "pod", "outrigger-temporal-0", "-n", "kruise-system")
	s.run("kubectl", "rollout", "status", "statefulset/outrigger-temporal", "-n", "kruise-system", "--timeout=3m")
	service.Redirect(s.address())
}

// The history outlives the pod of the server, and rollouts outlive the history.
func TestTheEmbeddedTemporalRollsOut(t *testing.T) {
	s := newSite(t)
	s.volume("first")
	// The node has no network of Services.
	service, err := link.OpenAt(s.ctx, embeddedAddress, "127.0.0.1:1")
	require.NoError(t, err)
	t.Cleanup(service.Close)
	s.run("helm", "install", "outrigger", root+"/charts/outrigger", "--namespace=kruise-system", "--create-namespace",
		"--set=temporal.embedded.enabled=true,temporal.embedded.image="+temporal+",temporal.embedded.storage.storageClassName=directory",
		"--set=temporal.env.TEMPORAL_ADDRESS="+embeddedAddress, "--wait", "--timeout=4m")
	service.Redirect(s.address())
	s.works()
	s.run("helm", "test", "outrigger", "--namespace=kruise-system", "--timeout=2m")
	before := s.runs()
	require.NotEmpty(t, before)

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
