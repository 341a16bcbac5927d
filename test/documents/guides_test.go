package documents

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/dev/cluster"
)

const (
	root = "../.."
	// stepTimeout limits one command. The longest commands wait for a rollout.
	stepTimeout = 3 * time.Minute
)

// guides returns the documents whose console sessions are tested from top to bottom, one document after the
// other.
func guides() []string { return []string{"docs/quick-start.md", "docs/recipes.md"} }

// elsewhere returns the prefixes of commands with which a reader starts a stack. The test does not run these
// commands, because the test has a separate stack.
func elsewhere() []string { return []string{"make ", "set -a; source .run/env"} }

func TestCommandsOfGuidesPrintTheirOutput(t *testing.T) {
	ctrllog.SetLogger(logr.Discard())
	stack := start(t)
	for _, guide := range guides() {
		passed := t.Run(filepath.Base(guide), func(t *testing.T) {
			found, err := sessions(filepath.Join(root, guide))
			require.NoError(t, err)
			tried := 0
			for _, session := range found {
				if session.language != "console" {
					continue
				}
				for _, step := range session.steps() {
					if belongsElsewhere(step.command) {
						continue
					}
					tried++
					out := shell(t, stack, step.command)
					line, ok := missing(step.want, out)
					require.True(t, ok, "%s:%d: $ %s\nwants: %s\nprinted:\n%s", guide, step.line, step.command, line, out)
				}
			}
			assert.Positive(t, tried)
		})
		if !passed {
			return // The remaining objects would affect the next guide.
		}
	}
}

func belongsElsewhere(command string) bool {
	for _, prefix := range elsewhere() {
		if strings.HasPrefix(command, prefix) {
			return true
		}
	}
	return false
}

func start(t *testing.T) *cluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	stack, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(stack.Shutdown)
	for _, role := range []string{"operator", "webhook", "worker"} {
		_, err := stack.StartRole(ctx, role)
		require.NoError(t, err)
	}
	return stack
}

// shell runs a command in the directory of the project and returns the output. The command may fail, because
// documents also show failures.
func shell(t *testing.T, stack *cluster.Cluster, command string) string {
	t.Helper()
	out, _ := typed(t, stack, root, command)
	return out
}

// typed runs a command in a directory, answers prompts with yes, and returns the output.
func typed(t *testing.T, stack *cluster.Cluster, folder, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, "bash", "-eo", "pipefail", "-c", command)
	cmd.Dir, cmd.Stdin = folder, strings.NewReader("yes\n")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+stack.Kubeconfig,
		"TEMPORAL_ADDRESS="+stack.TemporalAddress, "TEMPORAL_TLS=false", "HOME="+t.TempDir(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		out = fmt.Appendf(out, "\n(not ended after %s: %v)", stepTimeout, err)
	}
	return string(out), err
}
