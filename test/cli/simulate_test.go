package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/internal/simulate"
)

// simulates runs outrigger simulate policy with policy on standard input.
func simulates(t *testing.T, kubeconfig, policy string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"simulate", "policy", "-f", "-", "--kubeconfig=" + kubeconfig, "--now=2026-11-27T12:00:00Z"}, args...)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger"), args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(policy), &out, &out
	err := cmd.Run()
	return out.String(), err
}

// readOnly returns the path of a kubeconfig of a user with the ClusterRole view.
func readOnly(t *testing.T) string {
	t.Helper()
	kubectl(t, "", "create", "serviceaccount", "viewer", "-n", "default")
	kubectl(t, "", "create", "clusterrolebinding", "viewer", "--clusterrole=view", "--serviceaccount=default:viewer")
	token := strings.TrimSpace(kubectl(t, "", "create", "token", "viewer", "-n", "default"))
	data, err := os.ReadFile(stack.Kubeconfig)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	user := strings.TrimSpace(kubectl(t, "", "config", "view", "--minify", "-o", "jsonpath={.contexts[0].context.user}"))
	for _, args := range [][]string{
		{"config", "unset", "users." + user, "--kubeconfig=" + path},
		{"config", "set-credentials", user, "--token=" + token, "--kubeconfig=" + path},
	} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return path
}

func TestARolloutUnderAPolicyIsSimulated(t *testing.T) {
	defer staged(t, "tried", `[{upTo: 1, bake: 1h}]`)()
	policy := func(spec string) string {
		return "apiVersion: outrigger.io/v1alpha1\nkind: RolloutPolicy\nmetadata: {name: draft}\nspec: " + spec + "\n"
	}
	specs := func() string {
		return kubectl(t, "", "get", "sidecarsets,rolloutpolicies,pods", "-A", "-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name}: {.spec}{"\n"}{end}`)
	}
	before := specs()
	draft := policy(`{selector: {}, matchingPrecedence: 1, maxUnavailablePerOwner: 1, steps: [{name: canary, upTo: 1, bake: 10m, approval: {}}, {upTo: 50%}]}`)
	out, err := simulates(t, stack.Kubeconfig, draft, "--sidecarset=tried", "--approval-after=2h")
	require.NoError(t, err, out)
	assert.Equal(t, `Simulation of RolloutPolicy draft for SidecarSet tried, from 2026-11-27T12:00:00Z; nothing is written
6 pods, 6 to upgrade, maxUnavailable 2 (2 pods); a pod is ready 5s after its upgrade
No pod is to be upgraded now: the simulation upgrades all pods to a hypothetical new image

+0s        step 1 of 3 (canary)  1 pod in 1 batch, 1 unavailable at most
+5s        step 1 of 3 (canary)  reached: 1 of 6 pods
+5s        step 1 of 3 (canary)  bake 10m
+10m5s     step 1 of 3 (canary)  waits for approval (assumed after 2h)
+2h10m5s   step 2 of 3           2 pods in 2 batches until +2h10m10s, 1 unavailable at most
+2h10m15s  step 2 of 3           reached: 3 of 6 pods
+2h10m15s  step 3 of 3           3 pods in 3 batches until +2h10m25s, 1 unavailable at most
+2h10m30s  step 3 of 3           complete

Total: 2h10m30s, 6 pods in 6 batches; unavailable at most: 1 pod, 1 of one owner
`, out)

	out, err = simulates(t, stack.Kubeconfig, draft, "--sidecarset=tried", "-o", "json")
	require.NoError(t, err, out)
	var result simulate.Result
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	assert.True(t, result.Complete && result.Hypothetical)
	assert.Equal(t, 6, result.Upgraded)

	for name, c := range map[string]struct{ spec, says string }{
		"not selected":      {`{selector: {matchLabels: {no: set}}}`, "Note: this policy does not apply to SidecarSet tried, because its selector does not select it; the simulation applies it\n"},
		"a later policy":    {`{selector: {}, matchingPrecedence: 1001}`, "Note: this policy does not apply to SidecarSet tried, because RolloutPolicy tried has precedence (matchingPrecedence 1000); the simulation applies it\n"},
		"by its name":       {`{selector: {}}`, "Simulation of RolloutPolicy draft"},
		"limits of domains": {`{selector: {}, domains: {topologyKey: kubernetes.io/os}}`, "unavailable at most: 2 pods, 2 of one owner"},
		"budgets":           {`{selector: {}, respectPodDisruptionBudgets: true}`, "complete\n"},
	} {
		out, err := simulates(t, stack.Kubeconfig, policy(c.spec), "--sidecarset=tried")
		require.NoError(t, err, out)
		assert.Contains(t, out, c.says, name)
		assert.Equal(t, strings.HasPrefix(c.says, "Note"), strings.Contains(out, "Note"), name)
	}
	viewer := readOnly(t)
	assert.Eventually(t, func() bool {
		out, err = simulates(t, viewer, policy(`{selector: {}, domains: {topologyKey: kubernetes.io/os}}`), "--sidecarset=tried")
		return err == nil
	}, 3*time.Minute, 100*time.Millisecond, "the role view is aggregated")
	assert.Contains(t, out, "Note: the API server did not validate the policy, because you may not create RolloutPolicies\n")
	assert.Contains(t, out, "Note: the simulation ignores domains, because you may not list nodes\n")
	assert.NotContains(t, out, "does not apply")
	assert.Equal(t, before, specs(), "the simulation wrote something")
}

func TestASimulationNamesWhatIsWrong(t *testing.T) {
	policy := func(spec string) string {
		return "apiVersion: outrigger.io/v1alpha1\nkind: RolloutPolicy\nmetadata: {name: draft}\nspec: " + spec + "\n"
	}
	defer staged(t, "wrong", `[{upTo: 1, bake: 1h}]`)()
	out, err := simulates(t, stack.Kubeconfig, policy("{selector: {}}"), "--sidecarset=absent")
	require.Error(t, err)
	assert.Equal(t, "outrigger: SidecarSet absent does not exist: kubectl get sidecarsets lists the names for --sidecarset\n", out)
	out, err = simulates(t, stack.Kubeconfig, policy("{selector: {}, steps: [{upTo: half}, {upTo: 1, bake: -1s}]}"), "--sidecarset=wrong")
	require.Error(t, err)
	assert.Contains(t, out, "outrigger: RolloutPolicy draft is invalid: spec.steps[0].upTo: ")
	assert.Contains(t, out, "; spec.steps[1].bake: ")
	out, err = simulates(t, stack.Kubeconfig, policy("{selector: {}, windows: [{schedule: 0 9 * * *, duration: 1h, timeZone: Europe/Brlin}]}"), "--sidecarset=wrong")
	require.Error(t, err)
	assert.Contains(t, out, "outrigger: RolloutPolicy draft is invalid: spec.windows[0]: ")
}
