package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/cluster/process"
)

// TestMain runs the tests, the detached supervisor or a fake role, because the test binary is also used as
// these programs.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "outrigger":
		playRole(os.Args[1:])
	case len(os.Args) > 1 && os.Args[1] == "up":
		main()
	default:
		os.Exit(m.Run())
	}
}

// playRole prints its arguments and answers /readyz until SIGTERM.
func playRole(args []string) {
	fmt.Println(strings.Join(args, " "))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for _, arg := range args {
		if address, ok := strings.CutPrefix(arg, "--health-probe-bind-address="); ok {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
			go func() { panic(http.ListenAndServe(address, mux)) }()
		}
	}
	<-ctx.Done()
}

// inRepository changes to a small repository with the real programs, fake roles and the manifests of
// testdata.
func inRepository(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	enterRepository(t, "dev/stack/testdata")
	require.NoError(t, os.RemoveAll("bin/outrigger")) // The real program may exist.
	require.NoError(t, os.Symlink(self, "bin/outrigger"))
}

// enterRepository changes to a small repository with the real programs and the given manifests.
func enterRepository(t *testing.T, manifests string) {
	repository, err := filepath.Abs("../..")
	require.NoError(t, err)
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), nil, 0o600))
	require.NoError(t, os.CopyFS(filepath.Join(root, "config"), os.DirFS(filepath.Join(repository, manifests))))
	require.NoError(t, os.Mkdir(filepath.Join(root, "bin"), 0o755))
	programs, err := os.ReadDir(filepath.Join(repository, "bin"))
	require.NoError(t, err)
	for _, program := range programs {
		require.NoError(t, os.Symlink(filepath.Join(repository, "bin", program.Name()), filepath.Join(root, "bin", program.Name())))
	}
	t.Chdir(root)
}

func stack(t *testing.T, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // Cleanup functions run after the end of t.Context.
	defer cancel()
	var out bytes.Buffer
	command := newCommand()
	command.SetOut(&out)
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	return out.String(), err
}

func mustStack(t *testing.T, args ...string) string {
	out, err := stack(t, args...)
	require.NoError(t, err)
	return out
}

func TestStackFromUpToDown(t *testing.T) {
	inRepository(t)
	assert.Equal(t, "nothing is running\n", mustStack(t, "down"))
	assert.Contains(t, mustStack(t, "up", "--detach", "--workers=2", "--nodes=1"), "The stack is up: 10 processes")
	t.Cleanup(func() { mustStack(t, "down") })
	assert.Contains(t, mustStack(t, "up", "--detach"), "already up")
	assert.Contains(t, mustStack(t, "up"), "already up")

	env := readEnv(t)
	for _, key := range []string{"KUBECONFIG", "TEMPORAL_ADDRESS", "TEMPORAL_UI", "WEBHOOK_URL", "OPERATOR_METRICS", "WORKER_2_METRICS", "CONTROLLER_MANAGER_PID"} {
		assert.NotEmpty(t, env[key], key)
	}
	assert.Equal(t, "running", stateOf(t, "worker-1"))
	profile := exec.Command("bash", "-c", "set -a; source .run/env; set +a; bin/temporal workflow count")
	profile.Env = append(os.Environ(), "TEMPORAL_NAMESPACE=prod", "TEMPORAL_API_KEY=key", "TEMPORAL_PROFILE=cloud")
	out, err := profile.CombinedOutput()
	assert.NoError(t, err, "the env file replaces the Temporal configuration of the user: %s", out)

	assert.Regexp(t, `^kill: worker-[12], worker-[12]\n$`, mustStack(t, "kill", "worker"))
	assert.Equal(t, "stopped", stateOf(t, "worker-2"))
	assert.Empty(t, readEnv(t)["WORKER_2_PID"])
	mustStack(t, "start", "worker-2")
	assert.NotEqual(t, env["WORKER_2_PID"], readEnv(t)["WORKER_2_PID"])
	assert.Equal(t, "stopped", stateOf(t, "worker-1"))
	assert.Equal(t, "start: worker-3\n", mustStack(t, "start", "worker-3"))
	assert.NotEmpty(t, readEnv(t)["WORKER_3_METRICS"])
	assert.Equal(t, "stop: temporal\n", mustStack(t, "stop", "temporal"))
	_, err = stack(t, "stop", "rudder")
	require.ErrorContains(t, err, `"rudder": unknown process`)
}

// The demo needs the real roles, which `make build` builds.
func TestTheDemoIsALineForEachStep(t *testing.T) {
	enterRepository(t, "config")
	t.Setenv("V", "")
	out := mustStack(t, "demo", "--exit")
	const at = ` +[0-9.]+ s  `
	assert.Regexp(t, `^`+strings.Join([]string{
		at + `starting Kubernetes with 4 simulated nodes, Temporal and Outrigger: about ten seconds\n`,
		at + `Temporal is up; its UI: http://127\.0\.0\.1:\d+\n`,
		at + `Kubernetes and Outrigger are up: export KUBECONFIG=\S+\n`,
		at + `20 pods match a SidecarSet: each was injected with sidecar1, running centos:6\.7\n`,
		at + `the image changes to centos:7; at most 2 pods may be unavailable; the run: http://\S+/workflows/sidecarset%2Ftest-sidecarset%2F\S+\n`,
		at + `the first pod is upgraded in place\n`,
		at + `the rollout is paused at \d+ of 20 pods; no pod is patched for 3s\n`,
		at + `the rollout is resumed\n`,
		at + `done: 20 pods run centos:7; at most 2 were unavailable at once; app containers restarted 0 times\n`,
	}, "")+`$`, out)
}

// The demo needs the real roles, which `make build` builds.
func TestTheFleetDemoStopsABadVersionInTheFirstCluster(t *testing.T) {
	enterRepository(t, "config")
	out := mustStack(t, "fleet-demo", "--exit")
	const at, progress = ` +[0-9.]+ s  `, `(?: +[0-9.]+ s    \w+: .*\n)+`
	assert.Regexp(t, `^`+strings.Join([]string{
		at + `starting the clusters canary, eu and rest, and one Temporal: about a minute\n`,
		at + `three clusters are up; Temporal: http://127\.0\.0\.1:\d+\n`,
		at + `Outrigger runs in each cluster; the page: http://127\.0\.0\.1:\d+/fleet\n`,
		progress + at + `4 pods of each cluster run proxy:v1\n`,
		at + `GitOps delivers proxy:v2 to all clusters, to rest first\n`,
		progress + at + `4 pods of each cluster run proxy:v2\n`,
		at + `GitOps delivers proxy:bad to all clusters, to rest first\n`,
		progress + at + `done: canary is back at proxy:v2; no pod of eu and rest has changed; the page shows why\n`,
	}, "")+`$`, out)
	assert.Equal(t, "nothing is running\n", mustStack(t, "down"))
}

func TestAnUnaskedEndIsLogged(t *testing.T) {
	inRepository(t)
	mustStack(t, "up", "--detach", "--workers=0", "--nodes=1")
	t.Cleanup(func() { mustStack(t, "down") })
	require.NoError(t, syscall.Kill(pidOf(t, readEnv(t)["OPERATOR_PID"]), syscall.SIGKILL))
	require.NoError(t, wait.PollUntilContextCancel(t.Context(), 10*time.Millisecond, true, func(context.Context) (bool, error) {
		return readEnv(t)["OPERATOR_PID"] == "", nil
	}))
	assert.Contains(t, process.Tail(".run/stack.log"), "operator: signal: killed; start it again with `make start ROLE=operator`")
}

func TestAKilledSupervisorLeavesNothingAndIsRecoveredFrom(t *testing.T) {
	inRepository(t)
	mustStack(t, "up", "--detach", "--no-roles", "--nodes=1")
	var handles []unix.PollFd
	for key, value := range readEnv(t) {
		if strings.HasSuffix(key, "_PID") {
			fd, err := unix.PidfdOpen(pidOf(t, value), 0)
			require.NoError(t, err)
			t.Cleanup(func() { _ = unix.Close(fd) })
			handles = append(handles, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	require.Len(t, handles, 6)
	status, err := os.ReadFile("/proc/" + readEnv(t)["ETCD_PID"] + "/status")
	require.NoError(t, err)
	supervisor := regexp.MustCompile(`(?m)^PPid:\s+(\d+)$`).FindSubmatch(status)
	require.NoError(t, syscall.Kill(pidOf(t, string(supervisor[1])), syscall.SIGKILL))
	for i := range handles {
		assert.True(t, ends(t, handles[i:i+1]), "a process outlived its supervisor")
	}
	_, err = stack(t, "status")
	require.ErrorIs(t, err, errDown)
	assert.Equal(t, "nothing is running\n", mustStack(t, "down"))

	assert.Contains(t, mustStack(t, "up", "--detach", "--no-roles", "--nodes=1", "--keep"), "The stack is up: 6 processes")
	assert.Equal(t, "the stack is down\n", mustStack(t, "down"))
	assert.NoFileExists(t, ".run/env")
}

// ends waits up to ten seconds for a process to end, and reports whether the process has ended. Signals of
// the Go runtime interrupt a poll, so ends retries.
func ends(t *testing.T, process []unix.PollFd) bool {
	for {
		n, err := unix.Poll(process, 10_000)
		if !errors.Is(err, unix.EINTR) {
			require.NoError(t, err)
			return n == 1
		}
	}
}

func TestDetachShowsWhyTheStackDidNotStart(t *testing.T) {
	inRepository(t)
	require.NoError(t, os.Remove("bin/etcd"))
	_, err := stack(t, "up", "--detach")
	require.ErrorContains(t, err, "program etcd is missing (run tools/build.sh etcd)")
	assert.Equal(t, "nothing is running\n", mustStack(t, "down"))
}

func TestRunRequiresAKubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	_, err := stack(t, "run")
	require.ErrorContains(t, err, "set --kubeconfig or KUBECONFIG")
}

func TestRunPlaysTheRolesAgainstAnotherCluster(t *testing.T) {
	inRepository(t)
	mustStack(t, "up", "--detach", "--no-roles", "--nodes=1")
	t.Cleanup(func() { mustStack(t, "down") })
	env := readEnv(t)
	t.Setenv("TEMPORAL_ADDRESS", env["TEMPORAL_ADDRESS"])
	t.Setenv("TEMPORAL_NAMESPACE", "default")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &stopper{stop: cancel, at: "Ctrl-C"}
	require.NoError(t, run(ctx, runOptions{
		AttachOptions: cluster.AttachOptions{
			Dir: ".run/roles", Bin: "bin", Kubeconfig: env["KUBECONFIG"], WebhookURL: "https://localhost:9443",
		},
		webhook: "--feature-gates=Some=true --log-level=debug",
	}, out))
	assert.Contains(t, process.Tail(".run/roles/logs/webhook.log"), " --feature-gates=Some=true --log-level=debug")
	assert.NotContains(t, process.Tail(".run/roles/logs/worker.log"), "--feature-gates")
	assert.NotContains(t, process.Tail(".run/roles/logs/worker.log"), "--temporal-", "variables decide")
	assert.Regexp(t, regexp.MustCompile(`^operator is ready; .*\nworker is ready; .*\nwebhook is ready; .*\nlogs are in .*; Ctrl-C stops the roles\n$`), out.String())
}

// stopper collects output, and calls stop when the output contains the text at.
type stopper struct {
	bytes.Buffer
	stop func()
	at   string
}

func (s *stopper) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(s.String(), s.at) {
		s.stop()
	}
	return n, err
}

func readEnv(t *testing.T) map[string]string {
	data, err := os.ReadFile(".run/env")
	require.NoError(t, err)
	env := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[key] = value
	}
	return env
}

func stateOf(t *testing.T, name string) string {
	found := regexp.MustCompile(`(?m)^` + name + ` +(\w+)`).FindStringSubmatch(mustStack(t, "status"))
	require.Len(t, found, 2, name)
	return found[1]
}

func pidOf(t *testing.T, text string) int {
	pid, err := strconv.Atoi(text)
	require.NoError(t, err, fmt.Sprintf("pid %q", text))
	return pid
}
