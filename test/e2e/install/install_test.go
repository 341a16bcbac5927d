//go:build e2e

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// within is long, because the machine may be overloaded.
const within = 10 * time.Minute

// site runs the commands of a user in a cluster in which Outrigger is not installed yet.
type site struct {
	t   *testing.T
	ctx context.Context
}

func newSite(t *testing.T) *site {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	s := &site{t: t, ctx: ctx}
	for _, folder := range []string{"rbac", "crd", "namespace"} {
		s.run("kubectl", "delete", "--ignore-not-found", "-k", root+"/config/"+folder)
	}
	return s
}

// run runs a program as the admin, requires that the program succeeds, and returns the output.
func (s *site) run(program string, args ...string) string {
	s.t.Helper()
	out, err := s.try(program, args...)
	require.NoError(s.t, err, "%s %s: %s", program, strings.Join(args, " "), out)
	return out
}

func (s *site) try(program string, args ...string) (string, error) {
	command := exec.CommandContext(s.ctx, filepath.Join(bin, program), args...)
	home := s.t.TempDir()
	command.Env = append(os.Environ(), "KUBECONFIG="+node.Kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := command.CombinedOutput()
	return string(out), err
}

func (s *site) apply(manifest string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "manifest.yaml")
	require.NoError(s.t, os.WriteFile(file, []byte(manifest), 0o600))
	s.run("kubectl", "apply", "-f", file)
}

func (s *site) jsonpath(of, path string) string {
	s.t.Helper()
	return s.run("kubectl", append(strings.Fields("get "+of), "-o", "jsonpath="+path)...)
}

const set = `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: installed}
spec:
  selector: {matchLabels: {app: installed}}
  containers:
  - {name: side, image: ` + v1 + `}
  updateStrategy: {maxUnavailable: 2}
`

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: installed, namespace: default}
spec:
  replicas: 4
  selector: {matchLabels: {app: installed}}
  template:
    metadata: {labels: {app: installed}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: app, image: ` + app + `}
`

// works asserts that a sidecar is injected and upgraded.
func (s *site) works() {
	s.t.Helper()
	s.apply(set)
	s.apply(deployment)
	s.run("kubectl", "rollout", "status", "deployment/installed", "--timeout=3m")
	require.Equal(s.t, strings.Repeat(v1+" ", 4), s.images(), "every pod got the sidecar")
	s.upgrade(v2)
	restarts := func(container string) string {
		return s.jsonpath("pods -l app=installed", `{range .items[*]}{.status.containerStatuses[?(@.name=="`+container+`")].restartCount} {end}`)
	}
	assert.Equal(s.t, "0 0 0 0 ", restarts("app"))
	assert.Equal(s.t, "1 1 1 1 ", restarts("side"))
}

func (s *site) images() string {
	s.t.Helper()
	return s.jsonpath("pods -l app=installed", `{range .items[*]}{.spec.containers[?(@.name=="side")].image} {end}`)
}

// upgrade changes the image of the sidecar, and waits for the rollout.
func (s *site) upgrade(image string) {
	s.t.Helper()
	s.run("kubectl", "patch", "sidecarset", "installed", "--type=json", "-p",
		fmt.Sprintf(`[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, image))
	s.t.Log(s.run("kubectl-sidecarset", "status", "installed", "--watch", "--timeout=3m"))
	require.Equal(s.t, strings.Repeat(image+" ", 4), s.images())
}

// isGone asserts which objects remain after an uninstallation, and removes the remaining objects.
func (s *site) isGone() {
	s.t.Helper()
	assert.NotContains(s.t, s.run("kubectl", "get", "deployments,services", "-n", "kruise-system", "-o", "name"), "outrigger")
	webhooks := s.run("kubectl", "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name")
	assert.NotContains(s.t, webhooks, "outrigger")
	assert.Equal(s.t, v2, s.jsonpath("sidecarset installed", "{.spec.containers[0].image}"), "SidecarSets stay")
	s.run("kubectl", "rollout", "restart", "deployment/installed")
	s.run("kubectl", "rollout", "status", "deployment/installed", "--timeout=3m")
	s.run("kubectl", "delete", "sidecarset", "installed")
	s.run("kubectl", "delete", "deployment", "installed", "--cascade=foreground")
}

func TestHelmInstallsAndUninstalls(t *testing.T) {
	s := newSite(t)
	s.run("helm", "install", "outrigger", root+"/charts/outrigger", "--namespace=kruise-system", "--create-namespace",
		"--set=temporal.address="+temporalAddress, "--wait", "--timeout=4m")
	s.run("helm", "test", "outrigger", "--namespace=kruise-system", "--timeout=2m")
	s.works()
	s.run("helm", "upgrade", "outrigger", root+"/charts/outrigger", "--namespace=kruise-system", "--reset-then-reuse-values",
		"--set=worker.args={--max-unavailable-pods=10}", "--wait", "--timeout=4m")
	s.run("helm", "uninstall", "outrigger", "--namespace=kruise-system", "--wait", "--timeout=4m")
	s.isGone()
}

func TestKustomizeInstallsAndUninstalls(t *testing.T) {
	s := newSite(t)
	version, err := version()
	require.NoError(t, err)
	overlay := t.TempDir()
	base, err := filepath.Abs(root + "/config/default")
	require.NoError(t, err)
	relative, err := filepath.Rel(overlay, base)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(`
resources: [`+relative+`]
configMapGenerator:
- name: outrigger-temporal
  namespace: kruise-system
  behavior: merge
  literals: [TEMPORAL_ADDRESS=`+temporalAddress+`]
images:
- {name: ghcr.io/outrigger/outrigger, newTag: `+version+`}
`), 0o600))
	s.run("kubectl", "apply", "-k", overlay)
	for _, role := range []string{"operator", "worker", "webhook"} {
		s.run("kubectl", "-n", "kruise-system", "rollout", "status", "deployment/outrigger-"+role, "--timeout=4m")
	}
	s.works()
	for _, args := range uninstallation(t) {
		s.run("kubectl", args...)
	}
	s.isGone()
}

// uninstallation returns the commands in docs/install.md that uninstall Outrigger.
func uninstallation(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/install.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "With kubectl, run these commands in this order in a clone of the repository:\n\n```\n")
	require.True(t, found)
	block, _, found := strings.Cut(after, "```")
	require.True(t, found)
	var commands [][]string
	for line := range strings.Lines(block) {
		out, err := exec.CommandContext(t.Context(), "bash", "-c", `printf '%s\n' `+strings.TrimPrefix(strings.TrimSpace(line), "kubectl ")).Output()
		require.NoError(t, err)
		args := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		for i := range args {
			if strings.HasPrefix(args[i], "config/") {
				args[i] = filepath.Join(root, args[i])
			}
		}
		commands = append(commands, args)
	}
	require.Len(t, commands, 5)
	return commands
}
