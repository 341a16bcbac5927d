package integration

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
	"github.com/outrigger/outrigger/kube"
)

// otherCluster is a second cluster that uses the same Temporal server. otherCluster has a separate API
// server, roles and pods, and a SidecarSet with the same name as the SidecarSet of the scenario.
type otherCluster struct {
	*cluster.Cluster
	kube    client.Client
	uid     string
	set     *v1alpha1.SidecarSet
	watched *observer.Watch
}

func (s *scenario) startOtherCluster(n int32) *otherCluster {
	t := s.t
	t.Helper()
	c, err := cluster.Start(s.ctx, cluster.Options{Dir: t.TempDir(), Nodes: 1, WithoutTemporal: true})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	c.TemporalAddress = stack.TemporalAddress
	for _, role := range []string{"operator", "webhook", "worker"} {
		_, err := c.StartRole(s.ctx, role)
		require.NoError(t, err)
	}
	o := &otherCluster{Cluster: c, set: &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: *s.set.Spec.DeepCopy()}}
	config, err := c.RESTConfig()
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	o.kube, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	var system corev1.Namespace
	require.NoError(t, o.kube.Get(s.ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system))
	o.uid = string(system.UID)
	o.watched, err = observer.WatchPods(s.ctx, config, s.name, "app="+s.name, "side", "")
	require.NoError(t, err)
	o.watched.Expect("side:v1")
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, o.set} {
		require.NoError(t, o.kube.Create(s.ctx, object))
	}
	require.NoError(t, awaitInjection(s.ctx, o.kube, s.name, s.name, s.name))
	require.NoError(t, o.kube.Create(s.ctx, deployment(s.name, n)))
	_, err = o.watched.Await(s.ctx, observer.Converged(int(n)))
	require.NoError(t, err)
	return o
}

func (o *otherCluster) upgradeTo(ctx context.Context, t *testing.T, image string) {
	t.Helper()
	o.watched.Expect(image)
	patch := `[{"op":"replace","path":"/spec/containers/0/image","value":"` + image + `"}]`
	require.NoError(t, o.kube.Patch(ctx, o.set, client.RawPatch(types.JSONPatchType, []byte(patch))))
}

func (o *otherCluster) workflow() string { return protocol.WorkflowID(o.set.Name, o.set.UID) }

// restartOperator restarts the operator of a cluster, and waits until the operator has listed the open runs.
func restartOperator(s *scenario, c *cluster.Cluster) {
	s.t.Helper()
	require.NoError(s.t, c.Stop(cluster.Operator))
	require.NoError(s.t, c.StartAgain(s.ctx, cluster.Operator))
	for _, role := range c.Roles() {
		if role.Name == cluster.Operator {
			s.poll("the operator to list runs", func() (bool, error) {
				return strings.Contains(metrics(s, role.Metrics), `outrigger_temporal_calls_total{operation="ListWorkflowExecutions",result="ok"}`), nil
			})
		}
	}
}

func metrics(s *scenario, url string) string {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, url, nil)
	require.NoError(s.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return string(body)
}

// prune runs outrigger temporal prune with answer as the answer to the prompt, and returns the output.
func (s *scenario) prune(cluster, answer string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, filepath.Join(bin, "outrigger"), "temporal", "prune", "--temporal-address", stack.TemporalAddress, "--cluster-uid", cluster)
	cmd.Stdin = strings.NewReader(answer)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(s.t, cmd.Run(), out.String())
	return out.String()
}

func (s *scenario) runStatus(id string) enums.WorkflowExecutionStatus {
	s.t.Helper()
	described, err := stack.temporal.DescribeWorkflow(s.ctx, id, "")
	require.NoError(s.t, err)
	return described.Status
}

func TestClustersThatShareATemporalDoNotSeeEachOther(t *testing.T) {
	s := newScenario(t, 6, nil)
	other := s.startOtherCluster(6)

	// A pause in one cluster does not affect the other cluster.
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	pause := protocol.Pause{By: "ann", Reason: "lunch"}
	paused := s.pause(pause)
	other.upgradeTo(s.ctx, t, "side:v2")
	_, err := other.watched.Await(s.ctx, observer.Converged(6))
	require.NoError(t, err)
	s.stillPaused(pause, paused)
	require.NoError(t, other.kube.Get(s.ctx, client.ObjectKeyFromObject(other.set), other.set))
	require.NotNil(t, other.set.Status.Rollout)
	assert.Nil(t, other.set.Status.Rollout.Pause)

	// Each cluster has an open run of a SidecarSet that does not exist in the other API server.
	other.upgradeTo(s.ctx, t, "side:v3")
	s.poll("the pause of the other cluster's run", func() (bool, error) {
		err := stack.temporal.SignalWorkflow(s.ctx, other.workflow(), "", protocol.PauseSignal, protocol.Pause{By: "bob"})
		return err == nil, nil // The run may not have started yet.
	})
	restartOperator(s, other.Cluster)
	restartOperator(s, stack.Cluster)
	for _, id := range []string{s.workflow(), other.workflow()} {
		assert.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, s.runStatus(id))
	}
	s.stillPaused(pause, paused)

	// After the other cluster is shut down, the command can terminate only the runs of the other cluster.
	other.Shutdown()
	s.poll("the list of the other cluster's runs", func() (bool, error) {
		listed := s.prune(other.uid, "no\n")
		assert.NotContains(t, listed, s.workflow())
		return strings.Contains(listed, other.workflow()) && strings.Contains(listed, "nothing was ended"), nil
	})
	assert.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, s.runStatus(other.workflow()))
	assert.Contains(t, s.prune(other.uid, "yes\n"), "ended 1 runs")
	assert.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, s.runStatus(other.workflow()))
	s.stillPaused(pause, paused)
	s.signal(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	s.await(observer.Converged(6))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
}
