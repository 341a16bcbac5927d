package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/kube"
)

const fleetPolicy = `
apiVersion: outrigger.io/v1alpha1
kind: FleetPolicy
metadata: {name: edge}
spec:
  sidecarSets: {matchNames: ["edge-*"]}
  stages:
  - {name: canary, clusters: {matchLabels: {stage: canary}}, bake: 3s, gates: [smoke]}
  - {name: rest, maxConcurrentClusters: 1}
  failure: {action: RollbackStage}
  gates:
  - {name: smoke, webhook: {url: "GATE"}}
`

// smokeGate is the service of the gate smoke. asked receives the requests. If fails is true, the service
// rejects content. If away is true, the service is unavailable.
type smokeGate struct {
	*httptest.Server
	fails, away atomic.Bool
	asked       chan map[string]any
}

func newSmokeGate(t *testing.T) *smokeGate {
	g := &smokeGate{asked: make(chan map[string]any, 100)}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var question map[string]any
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&question))
		g.asked <- question
		answer := `{"phase":"Success"}`
		if g.fails.Load() {
			answer = `{"phase":"Failure","message":"no connection"}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(g.Close)
	return g
}

// fleetMember is a separate cluster whose roles belong to a fleet.
type fleetMember struct {
	t       *testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	kube    client.Client
	set     *v1alpha1.SidecarSet
	watched *observer.Watch
}

// startFleetMember starts a cluster with the SidecarSet edge-proxy and four pods with the first version.
// worker contains additional flags of the worker.
func startFleetMember(ctx context.Context, t *testing.T, name string, worker ...string) (*fleetMember, error) {
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Nodes: 1, WithoutTemporal: true})
	if err != nil {
		return nil, err
	}
	t.Cleanup(c.Shutdown)
	t.Cleanup(func() { copyLogs(t, c.LogDir(), name) })
	c.TemporalAddress = stack.TemporalAddress
	for role, args := range map[string][]string{
		"operator": {"--fleet"}, "webhook": {"--fleet"},
		"worker": append([]string{"--fleet", "--fleet-cluster-name=" + name, "--fleet-cluster-labels=stage=" + name}, worker...),
	} {
		if _, err := c.StartRole(ctx, role, args...); err != nil {
			return nil, err
		}
	}
	m := &fleetMember{t: t, ctx: ctx, cluster: c, set: &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "edge-proxy"}}}
	m.set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "edge"}}
	m.set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v1"}}}
	m.set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(2))
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	if m.kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if m.watched, err = observer.WatchPods(ctx, config, "edge", "app=edge", "side", ""); err != nil {
		return nil, err
	}
	m.watched.Expect("side:v1")
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "failures"}}
	policy.Spec.Failure = &outriggerv1.RolloutFailure{MaxFailedPods: intstr.FromInt32(0)}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}, policy, m.set} {
		if err := m.kube.Create(ctx, object); err != nil {
			return nil, err
		}
	}
	if err := awaitInjection(ctx, m.kube, "edge", "edge", m.set.Name); err != nil {
		return nil, err
	}
	if err := m.kube.Create(ctx, deployment("edge", 4)); err != nil {
		return nil, err
	}
	_, err = m.watched.Await(ctx, observer.Converged(4))
	return m, err
}

// copyLogs copies the logs of a member to the logs of the stack if the test has failed.
func copyLogs(t *testing.T, from, name string) {
	if t.Failed() {
		to := filepath.Join(stack.LogDir(), name)
		assert.NoError(t, os.CopyFS(to, os.DirFS(from)))
	}
}

func (m *fleetMember) upgradeTo(image string) {
	m.t.Helper()
	m.watched.Expect(image)
	patch := `[{"op":"replace","path":"/spec/containers/0/image","value":"` + image + `"}]`
	require.NoError(m.t, m.kube.Patch(m.ctx, m.set, client.RawPatch(types.JSONPatchType, []byte(patch))))
}

// awaitImage waits until n pods exist, and all pods are ready with the image.
func (m *fleetMember) awaitImage(image string, n int) {
	m.t.Helper()
	m.watched.Expect(image)
	_, err := m.watched.Await(m.ctx, func(v observer.View) bool { return v.Pods == n && v.Updated == n && v.Ready == n })
	require.NoError(m.t, err, image)
}

// awaitReason waits until Progressing has the reason, and returns the SidecarSet.
func (m *fleetMember) awaitReason(reason string) *v1alpha1.SidecarSet {
	m.t.Helper()
	set := &v1alpha1.SidecarSet{}
	err := wait.PollUntilContextCancel(m.ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := m.kube.Get(ctx, client.ObjectKeyFromObject(m.set), set)
		progressing := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
		return progressing != nil && progressing.Reason == reason && progressing.ObservedGeneration == set.Generation, err
	})
	require.NoError(m.t, err, "%s: wait for %s, and it has %v", m.set.Name, reason, set.Status.Conditions)
	return set
}

// terminateAll terminates the open runs of a namespace whose workflow IDs have one of the prefixes, because
// other tests wait until no run is open. The roles of the members have stopped, so no process starts a run
// again.
func terminateAll(ctx context.Context, t *testing.T, namespace string, prefixes ...string) {
	t.Helper()
	for _, prefix := range prefixes {
		list, err := stack.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: namespace, Query: "ExecutionStatus='Running' AND WorkflowId STARTS_WITH '" + prefix + "'",
		})
		require.NoError(t, err)
		for _, run := range list.Executions {
			_, err := stack.temporal.WorkflowService().TerminateWorkflowExecution(ctx, &workflowservice.TerminateWorkflowExecutionRequest{
				Namespace: namespace, WorkflowExecution: run.Execution, Reason: "the test has ended",
			})
			assert.NoError(t, err)
		}
	}
}

func outriggerFleet(ctx context.Context, t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, code, errors := tryFleet(ctx, t, stdin, args...)
	require.Zero(t, code, "outrigger fleet %v: %s", args, errors)
	return out
}

// tryFleet runs outrigger fleet, and returns the standard output, the exit code and the standard error.
func tryFleet(ctx context.Context, t *testing.T, stdin string, args ...string) (out string, code int, errors string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "outrigger"), append([]string{"fleet", "--temporal-address=" + stack.TemporalAddress}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NotNil(t, cmd.ProcessState, "outrigger fleet %v: %v", args, err)
	return stdout.String(), cmd.ProcessState.ExitCode(), stderr.String()
}

func awaitFleet(ctx context.Context, t *testing.T, phase protocol.FleetPhase) (state protocol.FleetState) {
	t.Helper()
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		answer, err := stack.temporal.QueryWorkflow(ctx, protocol.FleetWorkflowID("edge-proxy"), "", protocol.StatusQuery)
		if err != nil {
			return false, nil // No member has reported content yet, or no worker is available.
		}
		state = protocol.FleetState{}
		err = answer.Get(&state)
		return state.Phase == phase, err
	})
	require.NoError(t, err, "wait for phase %s: %+v", phase, state)
	return state
}

// startFleet starts two clusters, applies fleetPolicy, and waits until the first content has completed all
// stages.
func startFleet(ctx context.Context, t *testing.T) (canary, rest *fleetMember, smoke *smokeGate) {
	t.Helper()
	t.Cleanup(func() {
		terminateAll(context.WithoutCancel(ctx), t, cluster.TemporalNamespace, protocol.FleetRegistryID, protocol.FleetWorkflowID("edge-proxy"), protocol.WorkflowID("edge-proxy", ""))
	})
	var starting errgroup.Group
	starting.Go(func() (err error) { canary, err = startFleetMember(ctx, t, "canary"); return err })
	starting.Go(func() (err error) { rest, err = startFleetMember(ctx, t, "rest"); return err })
	require.NoError(t, starting.Wait())
	smoke = newSmokeGate(t)
	policy := strings.ReplaceAll(fleetPolicy, "GATE", smoke.URL)
	assert.Equal(t, "FleetPolicy edge is applied\n", outriggerFleet(ctx, t, policy, "apply", "-f", "-"))
	awaitFleet(ctx, t, protocol.FleetThrough)
	canary.awaitReason(v1alpha1.ReasonRolloutComplete)
	rest.awaitReason(v1alpha1.ReasonRolloutComplete)
	return canary, rest, smoke
}

// The test rolls out content over two clusters with separate API servers. The content is delivered to the
// second stage first. No pod of the second stage may change before the run of the first stage has completed
// and the bake time has ended.
func TestSpec12_AFleetRollsOutStageByStage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	canary, rest, smoke := startFleet(ctx, t)
	assert.Contains(t, outriggerFleet(ctx, t, "", "members"), "stage=canary")

	rest.upgradeTo("side:v2")
	held := rest.awaitReason(v1alpha1.ReasonAwaitingPermit)
	assert.Equal(t, int32(0), held.Status.UpdatedPods)
	scale := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":5}}`))
	require.NoError(t, rest.kube.Patch(ctx, deployment("edge", 5), scale))
	_, err := rest.watched.Await(ctx, func(v observer.View) bool { return v.Pods == 5 })
	require.NoError(t, err)
	assert.Zero(t, rest.watched.View().Updated, "a new pod got content without a permit")
	awaitFleet(ctx, t, protocol.FleetRolling)
	var plan fleet.Preview
	require.NoError(t, json.Unmarshal([]byte(outriggerFleet(ctx, t, "", "plan", "edge-proxy", "-o", "json")), &plan))
	require.Len(t, plan.Stages, 2)
	assert.Equal(t, []fleet.StageState{fleet.StageInProgress, fleet.StageNext}, []fleet.StageState{plan.Stages[0].State, plan.Stages[1].State})
	assert.Equal(t, "rest", plan.Stages[1].Clusters[0].Name)
	canary.upgradeTo("side:v2")
	watched := outriggerFleet(ctx, t, "", "status", "edge-proxy", "--watch", "--content", plan.Hash)
	assert.Contains(t, watched, "edge-proxy: Through: all stages ended")
	awaitFleet(ctx, t, protocol.FleetThrough)
	set := rest.awaitReason(v1alpha1.ReasonRolloutComplete)
	permit := protocol.ParsePermit(set.Status.Rollout.Permit)
	require.NotNil(t, permit)
	assert.Equal(t, "rest", permit.Stage)
	_, served := canary.watched.Updates()
	asked, _ := rest.watched.Updates()
	require.Len(t, served, 4)
	require.Len(t, asked, 5)
	assert.GreaterOrEqual(t, asked[0].At.Sub(served[3].At), 2*time.Second, "the second stage began before the first had completed and baked")

	// After the end of the rollout, an abort rolls both clusters back, and a retry rolls out the same content
	// again.
	assert.Equal(t, "the rollout is aborted; all clusters with the content go back\n", outriggerFleet(ctx, t, "", "abort", "edge-proxy", "--reason", "errors"))
	awaitFleet(ctx, t, protocol.FleetFailed)
	canary.awaitImage("side:v1", 4)
	rest.awaitImage("side:v1", 5)
	assert.Contains(t, rest.awaitReason(v1alpha1.ReasonQuarantined).Status.Rollout.Quarantine.Reason, "errors")
	outriggerFleet(ctx, t, "", "retry", "edge-proxy")
	state := awaitFleet(ctx, t, protocol.FleetThrough)
	assert.Equal(t, 2, state.Attempt)
	canary.awaitImage("side:v2", 4)
	rest.awaitImage("side:v2", 5)

	// The rollout waits while a gate is unavailable. If the gate fails, the content stops after the first
	// stage.
	smoke.away.Store(true)
	smoke.fails.Store(true)
	rest.upgradeTo("side:v3")
	canary.upgradeTo("side:v3")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Regexp(c, `Rolling: .*; the measurement failed, and is retried: .*: the answer is 503 Service Unavailable`, outriggerFleet(ctx, t, "", "status", "edge-proxy"))
	}, time.Minute, 200*time.Millisecond)
	smoke.away.Store(false)
	state = awaitFleet(ctx, t, protocol.FleetFailed)
	assert.Equal(t, "gate smoke of stage canary failed: no connection", state.Message)
	canary.awaitReason(v1alpha1.ReasonQuarantined)
	canary.awaitImage("side:v2", 4)
	rest.awaitReason(v1alpha1.ReasonAwaitingPermit)
	assert.Zero(t, rest.watched.View().Updated)
	require.Len(t, smoke.asked, 4, "a gate measures each content and each attempt once")
	for _, hash := range []any{nil, plan.Hash, plan.Hash, state.Hash} {
		question := <-smoke.asked
		assert.Equal(t, "edge-proxy canary", fmt.Sprint(question["sidecarSet"], " ", question["step"]))
		if hash != nil {
			assert.Equal(t, hash, question["revision"])
		}
	}

	// A version that cannot start stops in the first stage, and the first stage is rolled back.
	rest.upgradeTo("side:bad")
	canary.upgradeTo("side:bad")
	require.Eventually(t, func() bool {
		state = awaitFleet(ctx, t, protocol.FleetFailed)
		return regexp.MustCompile("^cluster canary failed: .*side:bad").MatchString(state.Message)
	}, 10*time.Minute, time.Second)
	canary.awaitReason(v1alpha1.ReasonQuarantined)
	canary.awaitImage("side:v2", 4)
	rest.awaitReason(v1alpha1.ReasonAwaitingPermit)
	assert.Zero(t, rest.watched.View().Updated)
	var states []protocol.FleetState
	require.NoError(t, json.Unmarshal([]byte(outriggerFleet(ctx, t, "", "status", "-o", "json")), &states))
	require.Len(t, states, 1)
	assert.Equal(t, protocol.ClusterRolledBack, fleet.WorstFirst(&states[0])[0].State)
	assert.Contains(t, outriggerFleet(ctx, t, "", "status", "edge-proxy"), "edge-proxy: Failed: cluster canary failed: ")
	_, code, message := tryFleet(ctx, t, "", "status", "edge-proxy", "-w")
	assert.Equal(t, 2, code)
	assert.Regexp(t, "the rollout of edge-proxy has failed: .*side:bad", message)
	assert.Regexp(t, "aborted .*errors\n(.*\n)*.* retried ", outriggerFleet(ctx, t, "", "history", "edge-proxy"))
}
