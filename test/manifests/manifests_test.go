// Package manifests tries what people apply to a cluster.
package manifests

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/test/cluster"
)

// The webhooks refuse pods while nobody serves them, but never those of the
// system namespace: the deployments start beside them.
func TestDefaultInstallationStartsUnderItsOwnWebhooks(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), Nodes: 1})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	kubectl := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "../../bin/kubectl", append([]string{"--kubeconfig=" + c.Kubeconfig}, args...)...).CombinedOutput()
		return string(out), err
	}
	out, err := kubectl("apply", "-k", "../../config/default")
	require.NoError(t, err, out)
	for _, name := range []string{"operator", "worker", "webhook"} {
		out, err = kubectl("rollout", "status", "deployment/outrigger-"+name, "-n", "kruise-system", "--timeout=60s")
		require.NoError(t, err, out)
	}
	out, err = kubectl("run", "early", "--image=app:1")
	require.Error(t, err, out)
	require.Contains(t, out, "failed calling webhook")
	out, err = kubectl("label", "namespace", "default", "outrigger.io/injection=disabled")
	require.NoError(t, err, out)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		out, err := kubectl("run", "early", "--image=app:1")
		assert.NoError(c, err, out)
	}, 30*time.Second, 100*time.Millisecond, "an opted-out namespace")
}
