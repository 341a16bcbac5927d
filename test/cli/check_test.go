package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
)

// checked runs the command check, and returns the checks by part.
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
	eventually(t, []string{"check"}, "last poll ") // The worker has just started.
	parts, err := checked(t)
	require.NoError(t, err, parts)
	assert.Equal(t, healthy, states(parts), parts)
	assert.Regexp(t, ` leads, and has observed all SidecarSets$`, parts["operator"].Message)
	text := shows(t, "check")
	assert.Regexp(t, `(?m)^PART +STATE +MESSAGE\ndefinition +ok +.*\npolicies +ok +RolloutPolicies are installed \(0\)\nwebhook +ok +answers for pods of namespace default\n`, text)

	parts, err = checked(t, "--task-queue=another")
	require.EqualError(t, err, "failed: workers")
	assert.Contains(t, parts["workers"].Message, "Temporal responds, but no worker polls for workflow tasks in task queue another")

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
	assert.Contains(t, parts["webhook"].Message, ": namespace kruise-system has no Deployment of the webhook: ")
}

func TestCheckFailsIfNoOpenRunResponds(t *testing.T) {
	scenario(t, "silent")
	defer kubectl(t, "", "delete", "sidecarset/silent", "deployment/silent") // Other tests list all SidecarSets.
	setImage(t, "silent", "agent:bad")
	eventually(t, []string{"status", "silent"}, "2 of 6 updated", "ImagePullBackOff", "Run:       ")
	eventually(t, []string{"check"}, "last poll ")
	parts, err := checked(t)
	require.NoError(t, err)
	assert.Equal(t, view.CheckOK, parts["workers"].State)
	assert.Regexp(t, `^a run responds; last poll [0-9]+s ago: \S+$`, parts["workers"].Message)
	startPages(t, "127.0.0.1", "--temporal-address=127.0.0.1:1").shows("/", "TemporalNotResponding")
	assert.Regexp(t, `(?m)^silent .*,TemporalNotResponding `, shows(t, "list", "--temporal-address=127.0.0.1:1"))
	page := startPages(t, "127.0.0.1")

	// Temporal still lists the last polls of the worker.
	require.NoError(t, stack.Kill("worker"))
	defer func() { require.NoError(t, stack.StartAgain(context.WithoutCancel(t.Context()), "worker")) }()
	watch(t, func(line string) bool { return strings.Contains(line, "RunNotResponding") }, "list", "-w")
	assert.Contains(t, shows(t, "list"), "RunNotResponding")
	const next = "start its process outside of the cluster again (on a local stack: make start ROLE=worker-1)"
	assert.Regexp(t, `(?m)^Workers: .*: namespace kruise-system has no Deployment of the worker: `+regexp.QuoteMeta(next), shows(t, "list"))
	assert.Equal(t, 1, strings.Count(shows(t, "why", "silent"), "no worker"), "the cause is named once")
	assert.Contains(t, shows(t, "why", "silent"), next)
	page.shows("/", "RunNotResponding")
	parts, err = checked(t)
	require.EqualError(t, err, "failed: workers")
	assert.Regexp(t, `^Temporal responds, but no worker claims the tasks in task queue .*: namespace kruise-system has no Deployment of the worker: `, parts["workers"].Message)
}

func TestSpec8_10_EachCommandNamesWhatDoesNotAnswerWhileNothingRollsOut(t *testing.T) {
	scenario(t, "unattended")
	defer kubectl(t, "", "delete", "sidecarset/unattended", "deployment/unattended")
	page := startPages(t, "127.0.0.1")
	pod := kubectl(t, "", "get", "pods", "-l=app=unattended", "-o=jsonpath={.items[0].metadata.name}")

	// A former leader, or a restored backup of etcd, may leave a fault in the Lease.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		kubectl(t, "", "-n", "kruise-system", "annotate", "lease/outrigger-operator", "--overwrite", v1alpha1.FaultAnnotation+"=WorkerUnavailable: long over")
		assert.Contains(c, shows(t, "list"), "Workers: long over", "the operator renews the Lease at any time")
	}, 3*time.Minute, time.Second)
	awaitHealth(t)

	const outside = ": namespace kruise-system has no Deployment of the COMPONENT: start its process outside of the cluster again (on a local stack: make start ROLE=PROCESS), or install it"
	for _, c := range []struct{ process, local, reason, part, check, cause string }{
		{"worker", "worker-1", "WorkerUnavailable", "Workers", "workers",
			"Temporal responds, but no worker claims the tasks in task queue QUEUE (Temporal at " + stack.TemporalAddress + ", namespace default)" + outside},
		{"temporal", "temporal", "EngineUnavailable", "Temporal", "temporal",
			"Temporal at " + stack.TemporalAddress + " does not respond; rollouts continue by themselves once it responds; start its process again (on a local stack: make start ROLE=temporal)"},
		{"operator", "operator", "OperatorNotResponding", "Operator", "operator",
			"the operator does not respond, and status may be old: the operator has not renewed Lease kruise-system/outrigger-operator for AGE (after a start, the operator leads within 15s; without --leader-elect, the operator renews no Lease)" + outside},
		{"webhook", "webhook", "WebhookUnavailable", "Webhook", "webhook",
			"the webhook at URL does not respond to the operator (CAUSE); until it responds, new pods are rejected (failurePolicy Fail)" + outside},
	} {
		awaitHealth(t)
		require.NoError(t, stack.Kill(c.process))
		killed := time.Now()
		named := func(line string) bool { return strings.HasPrefix(line, c.part+": ") }
		watch(t, named, "list", "-w")
		t.Logf("%s: list after %s", c.process, time.Since(killed))
		message := strings.NewReplacer("COMPONENT", c.process, "PROCESS", c.local, "AGE", `[0-9ms]+`, "QUEUE", `\S+`, "URL", `\S+`, "CAUSE", `[^)]+`).Replace(regexp.QuoteMeta(c.cause))
		eventuallyMatches(t, "(?m)^unattended .*"+c.reason+"(?s:.*)\n"+c.part+": "+message+"\n", "list")
		eventuallyMatches(t, "(?m)^"+c.part+": +"+message+"$", "status", "unattended")
		eventuallyMatches(t, "(?m)^  "+message+"$", "why", "unattended")
		eventuallyMatches(t, "(?m)^"+c.part+": "+message+"$", "why", "pod/"+pod)
		asked := time.Now()
		parts, err := checked(t)
		t.Logf("%s: check takes %s: %v", c.process, time.Since(asked), parts)
		require.Error(t, err)
		assert.Equal(t, view.CheckFailed, parts[c.check].State)
		if c.process != "temporal" && c.process != "webhook" { // For these, check shows the error of its own connection.
			assert.Regexp(t, "^"+message+"$", parts[c.check].Message)
		}
		page.shows("/", c.reason)
		require.NoError(t, stack.StartAgain(t.Context(), c.process))
	}
	awaitHealth(t)
}

// awaitHealth waits until no command shows a fault.
func awaitHealth(t *testing.T) {
	t.Helper()
	eventually(t, []string{"check"}, "a run responds; ", " leads, and has observed all SidecarSets")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		out, err := sidecarset(t, "list")
		require.NoError(c, err)
		assert.NotRegexp(c, "(?m)^(Workers|Temporal|Operator|Webhook): ", out)
	}, 3*time.Minute, 200*time.Millisecond)
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
	eventually(t, []string{"check", "--task-queue=selects-only"}, "no worker polls for activity tasks in task queue selects-only/write")
}

func TestCheckNamesTheRightsThatAUserLacks(t *testing.T) {
	parts, err := checked(t, "--as=nobody")
	require.NoError(t, err, "nothing is known to have failed")
	for _, part := range []string{"definition", "policies", "webhook", "operator", "workers", "rights"} {
		assert.Equal(t, view.CheckUnknown, parts[part].State, parts[part].Message)
	}
	assert.Contains(t, parts["rights"].Message, "get sidecarsets (all commands; ClusterRole outrigger-view)")
}
