package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	plugin "github.com/outrigger/outrigger/cli"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/dev/cluster"
)

const bin = "../../bin"

// stack is the cluster that all tests share.
var stack struct {
	*cluster.Cluster
	// keys is the directory of payload keys, with which the roles decrypt payloads. Only the tests of encryption
	// start roles that also encrypt payloads.
	keys string
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cli:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctrllog.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "outrigger-cli-")
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if stack.keys, err = makeKeys(dir); err != nil {
		return 0, err
	}
	if stack.Cluster, err = cluster.Start(ctx, cluster.Options{Dir: dir}); err != nil {
		return 0, err
	}
	defer func() {
		stack.Shutdown()
		if code == 0 {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Fprintln(os.Stderr, "cli: logs are kept in", stack.LogDir())
		}
	}()
	decrypting := "--temporal-payload-key-dir=" + stack.keys
	for role, args := range map[string][]string{"operator": {decrypting, "--leader-elect=true", "--worker-check-interval=2s"}, "webhook": nil, "worker": {decrypting}} {
		if _, err := stack.StartRole(ctx, role, args...); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// sidecarset runs the plugin as an administrator.
func sidecarset(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return sidecarsetWith(t, "", args...)
}

func sidecarsetWith(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var out bytes.Buffer
	err := command(t, strings.NewReader(stdin), &out, args...).ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(&out, "error:", err)
	}
	return out.String(), err
}

func command(t *testing.T, in io.Reader, out io.Writer, args ...string) *cobra.Command {
	cmd := plugin.NewCommand(genericiooptions.IOStreams{In: in, Out: out, ErrOut: out})
	// Suggested commands repeat the flags of a user. The values that every test needs are set like defaults.
	for name, value := range map[string]string{
		"kubeconfig": stack.Kubeconfig, "cache-dir": t.TempDir(), "temporal-address": stack.TemporalAddress, "temporal-tls": "false",
	} {
		require.NoError(t, cmd.PersistentFlags().Lookup(name).Value.Set(value))
	}
	cmd.SetArgs(append([]string{}, args...))
	return cmd
}

// shows runs the plugin, requires that the plugin succeeds, and returns the output.
func shows(t *testing.T, args ...string) string {
	t.Helper()
	out, err := sidecarset(t, args...)
	require.NoError(t, err, out)
	return out
}

// eventually runs the plugin until the output contains all words.
func eventually(t *testing.T, args []string, words ...string) {
	t.Helper()
	var out string
	shown := assert.Eventually(t, func() bool {
		out, _ = sidecarset(t, args...)
		for _, word := range words {
			if !strings.Contains(out, word) {
				return false
			}
		}
		return true
	}, 3*time.Minute, 100*time.Millisecond)
	require.True(t, shown, "%v to show %q, not %s", args, words, out)
}

// eventuallyMatches runs the plugin until the output matches pattern. The output may change between two
// commands, because the operator may renew the Lease late.
func eventuallyMatches(t *testing.T, pattern string, args ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		out, _ := sidecarset(t, args...)
		assert.Regexp(c, pattern, out)
	}, 3*time.Minute, 100*time.Millisecond)
}

// watch runs the plugin until enough returns true for a line of the output.
func watch(t *testing.T, enough func(line string) bool, args ...string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Minute)
	defer stop()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- command(t, nil, write, args...).ExecuteContext(ctx)
		_ = write.Close()
	}()
	for lines := bufio.NewScanner(read); lines.Scan(); {
		if enough(lines.Text()) {
			stop()
		}
	}
	require.NoError(t, <-ended)
	require.ErrorIs(t, ctx.Err(), context.Canceled, "%v showed no such line before the timeout", args)
}

func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), append([]string{"--kubeconfig=" + stack.Kubeconfig}, args...)...)
	var warnings strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &warnings
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, warnings.String())
	return string(out)
}

// scenario creates a SidecarSet and six pods with the first version. The cache of the webhook may observe the
// SidecarSet with a delay.
func scenario(t *testing.T, name string) {
	t.Helper()
	named := func(manifest string) string { return strings.ReplaceAll(manifest, "NAME", name) }
	kubectl(t, named(`
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: NAME}
spec:
  selector: {matchLabels: {app: NAME}}
  updateStrategy: {maxUnavailable: 2}
  containers: [{name: agent, image: "agent:v1"}]
`), "apply", "-f", "-")
	awaitInjection(t, name)
	kubectl(t, named(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: default}
spec:
  replicas: 6
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: app, image: "app:1"}]}
`), "apply", "-f", "-")
	eventually(t, []string{"status", name}, "6 of 6 updated, 6 of them ready", "Status:    Complete\n")
}

// awaitInjection waits until the webhook injects the container agent into pods with the label app=<name>.
func awaitInjection(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return strings.Contains(kubectl(t, "", "run", "probe", "--image=app:1", "--labels=app="+name, "--dry-run=server", "-o", "yaml"), "agent:v1")
	}, 3*time.Minute, 100*time.Millisecond)
}

func setImage(t *testing.T, name, image string) {
	t.Helper()
	kubectl(t, "", "patch", "sidecarset", name, "--type=json", "-p", fmt.Sprintf(`[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, image))
}

func TestARolloutFromTheFirstLookToTheUndo(t *testing.T) {
	scenario(t, "logs")
	eventually(t, []string{"list"}, "logs   6         6         6       Complete")
	assert.Contains(t, shows(t, "plan", "logs", "--image", "agent=agent:v2"), "6 of 6 pods in 3 steps, at most 2 unavailable at once")

	// A rollout of an image that cannot be pulled stops after two pods.
	kubectl(t, "", "patch", "sidecarset", "logs", "--type=json", "-p", `[{"op":"replace","path":"/spec/containers/0/image","value":"agent:bad"},
		{"op":"add","path":"/metadata/annotations/kubernetes.io~1change-cause","value":"a typing error"}]`)
	eventually(t, []string{"status", "logs"}, "2 of 6 updated", "Failing", "ImagePullBackOff", "deployment/logs in default", "current  agent=agent:bad")
	eventually(t, []string{"status", "logs", "-o", "json"}, "; 2 with a sidecar that cannot start, such as default/logs-")
	_, err := sidecarset(t, "status", "logs", "--watch", "--timeout=10s")
	require.EqualError(t, err, "the rollout of SidecarSet logs has not ended after 10s")
	assert.Contains(t, shows(t, "why", "logs"), "all slots are used: 2 pods unavailable (maxUnavailable 2)")
	assert.Contains(t, shows(t, "list", "--outdated"), "Old")

	paused := shows(t, "pause", "logs", "--reason=errors in the logs")
	assert.Contains(t, paused, "sidecarset/logs paused")
	eventually(t, []string{"status", "logs"}, "Status:    Paused", "by admin: errors in the logs", "Run:       generation 2")
	assert.Regexp(t, `paused for \d+s by admin: errors in the logs`, shows(t, "why", "sidecarset/logs"))
	assert.Regexp(t, `(?m)^logs: paused for \d+s by admin: errors in the logs \(kubectl sidecarset resume logs\)$`, shows(t, "list"))

	back := shows(t, "undo", "logs", "--dry-run=client", "-o", "yaml")
	assert.Contains(t, back, "image: agent:v1")
	assert.NotContains(t, back, "resourceVersion")
	assert.Contains(t, shows(t, "undo", "logs", "--dry-run=server"), "(server dry run)")
	assert.Contains(t, shows(t, "status", "logs"), "agent=agent:bad", "dry runs wrote something")
	assert.Contains(t, shows(t, "undo", "logs"), "goes back to revision")
	assert.JSONEq(t, `{"name": "logs", "held": false, "message": "resumed"}`, shows(t, "resume", "logs", "-o", "json"))
	watched := shows(t, "status", "logs", "--watch", "--timeout=3m")
	assert.True(t, strings.HasSuffix(watched, "sidecarset/logs: rollout ended\n"), watched)

	eventually(t, []string{"resume", "logs"}, "no run is open, because no pod is left to upgrade")
	eventually(t, []string{"history", "logs"}, "agent=agent:bad", "Completed", "paused", "errors in the logs", "resumed", "kubectl-sidecarset")
	var all view.History
	require.NoError(t, json.Unmarshal([]byte(shows(t, "history", "logs", "-o", "json")), &all))
	images, causes := map[int64]string{}, map[string]string{}
	for _, run := range all.Runs {
		images[run.Generation] = run.Images
	}
	for _, revision := range all.Revisions {
		causes[revision.Images[0].Image] = revision.ChangeCause
	}
	assert.Equal(t, map[int64]string{1: "agent=agent:v1", 2: "agent=agent:bad", 3: "agent=agent:v1"}, images, "the third run continues the second one")
	assert.Equal(t, map[string]string{"agent:bad": "a typing error", "agent:v1": ""}, causes, "superseded before it was rolled out")
	assert.Contains(t, shows(t, "diff", "logs", "2"), "-  - image: agent:bad\n+  - image: agent:v1\n")
	assert.Regexp(t, `(?s)^from:\n  name: logs-.*\n  number: 2\n  spec:\n .*image: agent:bad\n.*\nto:\n  spec:\n .*image: agent:v1\n`, shows(t, "diff", "logs", "2", "-o", "yaml"))
	assert.Contains(t, shows(t, "undo", "logs", "--to-revision=3"), "is at revision")
	assert.Contains(t, shows(t, "open", "logs"), stack.TemporalUI+"/namespaces/default/workflows/sidecarset%2Flogs%2F")

	// If no run is open, the command pause sets spec.updateStrategy.paused.
	assert.Equal(t, "sidecarset/logs has no open run; its spec pauses the next rollout (spec.updateStrategy.paused); the spec has no reason, so the reason is not kept\nnext: kubectl sidecarset resume logs\n",
		shows(t, "pause", "logs", "--reason=later"))
	setImage(t, "logs", "agent:v2")
	eventually(t, []string{"status", "logs"}, "Status:    Paused", "by spec.updateStrategy.paused", "0 of 6 updated")
	assert.Contains(t, shows(t, "resume", "logs"), "sidecarset/logs resumed (spec.updateStrategy.paused is false)\n")
	shows(t, "status", "logs", "--watch", "--timeout=3m")
	eventually(t, []string{"status", "logs"}, "Status:    Complete", "agent=agent:v2")
}

func TestAPlanOfAFileBlamesTheField(t *testing.T) {
	scenario(t, "files")
	set := kubectl(t, "", "get", "sidecarset", "files", "-o", "yaml")
	changed := strings.Replace(set, "image: agent:v1", "image: agent:v1\n    command: [sleep]", 1)
	require.NotEqual(t, set, changed)
	out, err := sidecarsetWith(t, changed, "plan", "-f", "-")
	require.NoError(t, err, out)
	assert.Contains(t, out, "6 pods: cannot be upgraded in place: spec.containers[agent].command")
	kubectl(t, "", "patch", "sidecarset", "files", "--type=json", "-p", `[{"op":"add","path":"/spec/containers/0/command","value":["sleep"]}]`)
	_, err = sidecarset(t, "status", "files", "-w", "--timeout=3m")
	require.ErrorContains(t, err, "6 pods cannot be upgraded in place")
	assert.Contains(t, shows(t, "why", "files"), "cannot be upgraded in place: spec.containers[agent].command")

	var rollout view.Rollout
	require.NoError(t, json.Unmarshal([]byte(shows(t, "status", "files", "-o", "json")), &rollout))
	assert.Equal(t, 6, rollout.Counts.NotUpgradable)
	assert.Contains(t, shows(t, "list", "-o", "yaml"), "name: files")
}

func TestPodsWithARejectedUpgradeAreShownWithTheReason(t *testing.T) {
	scenario(t, "frozen")
	freeze(t, "frozen")
	setImage(t, "frozen", "agent:v2")
	eventually(t, []string{"status", "frozen"}, "Refused, Invalid\n", "writes rejected")
	assert.Contains(t, shows(t, "why", "frozen"), "is Refused: Invalid")
}

// freeze makes the API server reject image changes of the pods of a scenario.
func freeze(t *testing.T, name string) {
	t.Helper()
	kubectl(t, strings.ReplaceAll(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [UPDATE]}]
  validations:
  - expression: "!has(object.metadata.labels) || !('app' in object.metadata.labels) || object.metadata.labels['app'] != 'NAME' || object.spec.containers[0].image == oldObject.spec.containers[0].image"
    message: frozen until Monday
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}
`, "NAME", name), "apply", "-f", "-")
	require.Eventually(t, func() bool {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), "--kubeconfig="+stack.Kubeconfig, "set", "image", "pod", "-lapp="+name, "agent=agent:v0", "--dry-run=server").CombinedOutput()
		return err != nil && strings.Contains(string(out), "frozen until Monday")
	}, 3*time.Minute, 100*time.Millisecond, "the policy to be in force")
}

func TestWhyAPodLacksASet(t *testing.T) {
	kubectl(t, "", "create", "namespace", "quiet")
	kubectl(t, "", "label", "namespace", "quiet", "outrigger.io/injection=disabled")
	kubectl(t, "", "wait", "serviceaccount/default", "-n", "quiet", "--for=create", "--timeout=3m")
	kubectl(t, "", "run", "lonely", "-n", "quiet", "--image=app:1", "--labels=app=lonely")
	kubectl(t, "", "run", "lonely", "--image=app:1", "--labels=app=lonely")
	kubectl(t, `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: lonely}
spec:
  selector: {matchLabels: {app: lonely}}
  containers: [{name: agent, image: "agent:v1"}]
`, "apply", "-f", "-")
	assert.Contains(t, shows(t, "why", "pod/lonely", "-n", "quiet"), "sidecarset/lonely: not injected, its namespace has the label outrigger.io/injection=disabled")
	_, err := sidecarset(t, "why", "lonely")
	require.ErrorContains(t, err, "say sidecarset/lonely or pod/lonely")
	assert.Contains(t, shows(t, "why", "sidecarset/lonely"), "no pod is injected with this SidecarSet")
	missing := shows(t, "list", "--missing")
	assert.Regexp(t, `default +lonely +lonely +Missing`, missing)
	assert.NotContains(t, missing, "quiet")
}

func TestErrorsNameARemedy(t *testing.T) {
	for want, args := range map[string][]string{
		`there is no SidecarSet "nobody"`:                                            {"status", "nobody"},
		`User "bob" cannot get resource "sidecarsets" in API group "apps.kruise.io"`: {"--as=bob", "status", "nobody"},
		`there is neither a SidecarSet "nobody" nor such a pod in namespace default`: {"why", "nobody"},
		`use pod/NAME, NAMESPACE/POD or sidecarset/NAME`:                             {"why", "node/x"},
		`--timeout needs --watch`:                                                    {"status", "x", "--timeout=1m"},
		`--output "table": use wide, json, yaml`:                                     {"list", "-o", "table"},
		`plan: name a SidecarSet with the new image`:                                 {"plan"},
		`--dry-run "perhaps": use none, client or server`:                            {"undo", "x", "--dry-run=perhaps"},
		`no such host`: {"--server=https://nowhere.invalid", "list"},
	} {
		_, err := sidecarset(t, args...)
		require.ErrorContains(t, err, want, "%v", args)
	}
}

func TestCommandsShowTheStateOfTheClusterWithoutTemporal(t *testing.T) {
	scenario(t, "away")
	nobody := "--temporal-address=127.0.0.1:1"
	out := shows(t, nobody, "status", "away")
	assert.Contains(t, out, "Temporal at 127.0.0.1:1, namespace default: connection refused (start the server, or correct --temporal-address or TEMPORAL_ADDRESS)")
	assert.Contains(t, out, "6 of 6 updated")
	assert.Contains(t, shows(t, nobody, "history", "away"), "Runs are not listed: Temporal at 127.0.0.1:1")
	assert.Contains(t, shows(t, nobody, "plan", "away", "--image=agent=agent:v2"), "No estimate: Temporal at 127.0.0.1:1")
	elsewhere := []string{"--temporal-address=" + stack.TemporalAddress, "--temporal-namespace=temporal-system"}
	assert.Contains(t, shows(t, append(elsewhere, "status", "away")...), "none is open in Temporal at "+stack.TemporalAddress+", namespace temporal-system")
	absent := []string{"--temporal-address=" + stack.TemporalAddress, "--temporal-namespace=absent"}
	unknown := "Temporal at " + stack.TemporalAddress + ", namespace absent: the namespace does not exist (correct --temporal-namespace or TEMPORAL_NAMESPACE, or create it: outrigger temporal setup)"
	assert.Contains(t, shows(t, append(absent, "history", "away")...), "\nRuns are not listed: "+unknown+"\n")
	_, err := sidecarset(t, append(absent, "pause", "away")...)
	require.EqualError(t, err, "pause the rollout of SidecarSet away: "+unknown)
	_, err = sidecarset(t, nobody, "pause", "away")
	require.ErrorContains(t, err, "to pause by the spec, which takes effect")
}

func TestAWatchEndsWithItsSet(t *testing.T) {
	scenario(t, "gone")
	kubectl(t, "", "patch", "sidecarset", "gone", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/containers/0/image","value":"agent:v2"},{"op":"replace","path":"/spec/updateStrategy/paused","value":true}]`)
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- command(t, nil, write, "status", "gone", "-w", "--timeout=3m").ExecuteContext(t.Context())
		_ = write.Close()
	}()
	for lines := bufio.NewScanner(read); lines.Scan(); {
		if strings.Contains(lines.Text(), "Paused") {
			kubectl(t, "", "delete", "sidecarset", "gone", "--ignore-not-found") // The plugin may print Paused several times.
		}
	}
	require.EqualError(t, <-ended, "SidecarSet gone was deleted")
}

func TestAForbiddenWatchReportsAnError(t *testing.T) {
	scenario(t, "seen")
	setImage(t, "seen", "agent:bad")
	kubectl(t, "", "create", "clusterrole", "look", "--verb=get,list", "--resource=sidecarsets.apps.kruise.io,pods,controllerrevisions.apps")
	kubectl(t, "", "create", "clusterrolebinding", "look", "--clusterrole=look", "--user=eve")
	eventually(t, []string{"--as=eve", "status", "seen"}, "agent=agent:bad")
	_, err := sidecarset(t, "--as=eve", "status", "seen", "-w", "--timeout=3m")
	require.ErrorContains(t, err, `User "eve" cannot watch resource`)
}

func TestANewSetIsPlanned(t *testing.T) {
	scenario(t, "old")
	set := kubectl(t, "", "get", "sidecarset", "old", "-o", "yaml")
	set = strings.Replace(set, "  updateStrategy:\n", "  updateStrategy:\n    maxUnavaliable: 5\n", 1)
	out, err := sidecarsetWith(t, strings.ReplaceAll(set, "name: old", "name: new"), "plan", "-f", "-")
	require.ErrorContains(t, err, "admission rejects this SidecarSet: spec.containers[0].name")
	assert.Contains(t, out, "the SidecarSet is new: pods get it when they are created; 6 pods match now")
	assert.Contains(t, out, "Rejected: spec.containers[0].name", "the other set has this container")
	assert.Contains(t, out, `Note: unknown field "spec.updateStrategy.maxUnavaliable"`)
}

func TestKubectlRunsThePlugin(t *testing.T) {
	programs, err := filepath.Abs(bin)
	require.NoError(t, err)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "kubectl"), append([]string{"sidecarset", "--kubeconfig=" + stack.Kubeconfig}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+programs+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("list")
	require.NoError(t, err, out)
	assert.NotContains(t, out, "\x1b", "nobody sees colours in a pipe")
	out, err = run("status", "nobody")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Contains(t, out, `error: there is no SidecarSet "nobody"`)
}

func TestNamesOfSetsAreCompleted(t *testing.T) {
	scenario(t, "named")
	assert.Contains(t, shows(t, "__complete", "status", ""), "named\n")
}
