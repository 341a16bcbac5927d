package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/cli/view"
)

// checked runs check, and returns its lines by part.
func checked(t *testing.T, args ...string) (map[string]view.Check, error) {
	t.Helper()
	out, err := sidecarset(t, append([]string{"check", "-o", "json"}, args...)...)
	var checks view.Checks
	require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&checks), out)
	parts := map[string]view.Check{}
	for _, check := range checks {
		parts[check.Part] = check
	}
	return parts, err
}

func TestCheckNamesThePartThatFailed(t *testing.T) {
	states := func(parts map[string]view.Check) map[string]view.CheckState {
		found := map[string]view.CheckState{}
		for part, check := range parts {
			found[part] = check.State
		}
		return found
	}
	healthy := map[string]view.CheckState{"definition": "ok", "policies": "ok", "webhook": "ok", "operator": "ok", "temporal": "ok", "workers": "ok", "rights": "ok"}
	eventually(t, []string{"check"}, "last poll ") // the worker has just started
	parts, err := checked(t)
	require.NoError(t, err, parts)
	assert.Equal(t, healthy, states(parts), parts)
	assert.Regexp(t, ` leads, and has observed all SidecarSets$`, parts["operator"].Message)
	text := shows(t, "check")
	assert.Regexp(t, `(?m)^PART +STATE +MESSAGE\ndefinition +ok +.*\npolicies +ok +RolloutPolicies are installed \(0\)\nwebhook +ok +answers for pods of namespace default\n`, text)

	parts, err = checked(t, "--task-queue=another")
	require.EqualError(t, err, "failed: workers")
	assert.Contains(t, parts["workers"].Message, "no worker polls task queue another for workflow tasks, though Temporal answers")

	parts, err = checked(t, "-n", "kruise-system")
	require.NoError(t, err)
	assert.Equal(t, view.CheckUnknown, parts["webhook"].State, "its pods never wait for the webhook")

	parts, err = checked(t, "--temporal-namespace=another")
	require.EqualError(t, err, "failed: temporal, workers")
	assert.Contains(t, parts["temporal"].Message, "namespace another")

	require.NoError(t, stack.Stop("webhook"))
	defer func() { require.NoError(t, stack.StartAgain(t.Context(), "webhook")) }()
	parts, err = checked(t)
	require.EqualError(t, err, "failed: webhook")
	assert.Contains(t, parts["webhook"].Message, `failed calling webhook "pods.outrigger.io"`)
	assert.Contains(t, parts["webhook"].Message, ": namespace kruise-system has no pod of the webhook: ")
}

func TestCheckFailsIfNoOpenRunResponds(t *testing.T) {
	scenario(t, "silent")
	defer kubectl(t, "", "delete", "sidecarset/silent", "deployment/silent") // other tests list all SidecarSets
	setImage(t, "silent", "agent:bad")
	eventually(t, []string{"status", "silent"}, "2 of 6 updated", "ImagePullBackOff", "Run:       ")
	eventually(t, []string{"check"}, "last poll ")
	parts, err := checked(t)
	require.NoError(t, err)
	assert.Equal(t, view.CheckOK, parts["workers"].State)
	assert.Regexp(t, `^last poll [0-9]+s ago: \S+$`, parts["workers"].Message)
	startPages(t, "127.0.0.1", "--temporal-address=127.0.0.1:1").shows("/", "TemporalNotResponding")
	assert.Regexp(t, `(?m)^silent .*,TemporalNotResponding `, shows(t, "list", "--temporal-address=127.0.0.1:1"))
	page := startPages(t, "127.0.0.1")

	// Temporal still lists the last polls of the worker.
	require.NoError(t, stack.Kill("worker"))
	defer func() { require.NoError(t, stack.StartAgain(context.WithoutCancel(t.Context()), "worker")) }()
	watch(t, func(line string) bool { return strings.Contains(line, "RunNotResponding") }, "list", "-w")
	assert.Contains(t, shows(t, "list"), "RunNotResponding")
	page.shows("/", "RunNotResponding")
	parts, err = checked(t)
	require.EqualError(t, err, "failed: workers")
	assert.Regexp(t, `^the run of SidecarSet \w+ does not respond; last poll [0-9ms]+ ago \(\S+\): `+
		`namespace kruise-system has no pod of the worker: .*: kubectl -n kruise-system get deployment,replicaset -l app\.kubernetes\.io/component=worker$`, parts["workers"].Message)
}

func TestAnOperatorThatIsDownIsNamed(t *testing.T) {
	scenario(t, "unattended")
	defer kubectl(t, "", "delete", "sidecarset/unattended", "deployment/unattended")
	page := startPages(t, "127.0.0.1")
	const line = "nobody renews Lease kruise-system/outrigger-operator: the operator is down, or runs without --leader-elect now"
	require.NoError(t, stack.Stop("operator"))
	defer func() {
		require.NoError(t, stack.StartAgain(context.WithoutCancel(t.Context()), "operator"))
		eventually(t, []string{"check"}, " leads, and has observed all SidecarSets")
	}()
	watch(t, func(line string) bool {
		return strings.HasPrefix(line, "unattended ") && strings.Contains(line, "OperatorNotResponding")
	}, "list", "-w")
	page.shows("/", "OperatorNotResponding")
	page.shows("/sidecarsets/unattended", line)
	assert.Contains(t, shows(t, "status", "unattended"), "Operator:  "+line+"; the conditions may be old\nNext:      kubectl sidecarset check\n")
	assert.Contains(t, shows(t, "why", "unattended"), line+" (kubectl sidecarset check)")
	parts, err := checked(t)
	require.EqualError(t, err, "failed: operator")
	assert.Contains(t, parts["operator"].Message, line)
}

func TestCheckFailsIfNoWorkerPollsForThePatchesOfPods(t *testing.T) {
	client, err := sdk.NewLazyClient(sdk.Options{HostPort: stack.TemporalAddress, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	defer client.Close()
	selecting := worker.New(client, "selects-only", worker.Options{})
	selecting.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil }, workflow.RegisterOptions{Name: "none"})
	selecting.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "none"})
	require.NoError(t, selecting.Start())
	defer selecting.Stop()
	eventually(t, []string{"check", "--task-queue=selects-only"}, "no worker polls task queue selects-only/write for activity tasks")
}

func TestCheckNamesTheRightsThatAUserLacks(t *testing.T) {
	parts, err := checked(t, "--as=nobody")
	require.NoError(t, err, "nothing is known to have failed")
	for _, part := range []string{"definition", "policies", "webhook", "operator", "workers", "rights"} {
		assert.Equal(t, view.CheckUnknown, parts[part].State, parts[part].Message)
	}
	assert.Contains(t, parts["rights"].Message, "get sidecarsets (all commands; ClusterRole outrigger-view)")
}
