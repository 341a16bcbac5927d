package cli

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestACommandWithoutAClusterNamesTheFileThatItTried(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", "")
	assert.EqualError(t, noKubeconfig(file), "find a cluster: KUBECONFIG is not set, and "+file+" does not exist (set the variable, or use --kubeconfig)")
	assert.NoError(t, noKubeconfig(filepath.Dir(file)))
	t.Setenv("KUBECONFIG", file)
	assert.NoError(t, noKubeconfig(file), "CheckKubeconfig is about this file")
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	assert.NoError(t, noKubeconfig(file), "the configuration of a pod")
}
