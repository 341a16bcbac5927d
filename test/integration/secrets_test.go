package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
	outrigger "github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
)

// secret is a part of every value that must not leave the SidecarSet, its revisions and its pods.
const secret = "hunter2"

// withSecrets sets the secret in every field of a SidecarSet that can contain a secret.
func withSecrets(set *v1alpha1.SidecarSet) {
	set.Annotations = map[string]string{"example.com/token": secret + "-annotation"}
	set.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: secret + "-pull"}}
	side := &set.Spec.Containers[0]
	side.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: secret + "-env"}}
	side.Command, side.Args = []string{"run", secret + "-command"}, []string{"--token=" + secret + "-argument"}
}

// failRollouts rolls out an image that cannot be pulled, and then an image whose write to a pod is rejected,
// and waits until the rollout ends.
func (s *scenario) failRollouts() {
	s.t.Helper()
	s.upgradeTo("side:bad")
	s.await(func(v observer.View) bool { return v.InFlight == 2 })
	rejected := s.pods()[0].Name
	// The message of the rejection contains the secret.
	s.rejectingBecause(rejected, "side", "'rejected: ' + object.spec.containers.filter(c, has(c.env))[0].env[0].value", secret)
	s.upgradeTo("side:v2")
	s.poll("the write to be rejected", func() (bool, error) { return s.asked().RejectedWrites > 0, nil })
	s.allowing()
	s.await(observer.Converged(3))
	s.awaitSet("the end of the rollout", counts(3))
}

// asked queries the status of the newest run, which may be encrypted. If the query fails, asked returns an
// empty status.
func (s *scenario) asked() (status protocol.RolloutStatus) {
	s.t.Helper()
	reader, err := outrigger.NewLazyClient(outrigger.Options{Address: stack.TemporalAddress, Namespace: cluster.TemporalNamespace, Codec: stack.codec}, logr.Discard())
	require.NoError(s.t, err)
	defer reader.Close()
	answer, err := reader.QueryWorkflow(s.ctx, s.workflow(), "", protocol.StatusQuery)
	if err != nil {
		return status
	}
	require.NoError(s.t, answer.Get(&status))
	return status
}

// described returns the status of the SidecarSet as text.
func (s *scenario) described() string {
	set := &v1alpha1.SidecarSet{}
	require.NoError(s.t, stack.kube.Get(s.ctx, client.ObjectKeyFromObject(s.set), set))
	text, err := yaml.Marshal(set.Status)
	require.NoError(s.t, err)
	return string(text)
}

// rawHistories returns the serialized histories and descriptions of all runs of the SidecarSet.
func (s *scenario) rawHistories() string {
	s.t.Helper()
	var all []byte
	add := func(message proto.Message) {
		raw, err := proto.Marshal(message)
		require.NoError(s.t, err)
		all = append(all, raw...)
	}
	list, err := stack.temporal.ListWorkflow(s.ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: cluster.TemporalNamespace, Query: fmt.Sprintf("WorkflowId='%s'", s.workflow()),
	})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, list.Executions)
	add(list)
	for _, run := range list.Executions {
		id := run.Execution
		described, err := stack.temporal.DescribeWorkflowExecution(s.ctx, id.WorkflowId, id.RunId)
		require.NoError(s.t, err)
		add(described)
		events := stack.temporal.GetWorkflowHistory(s.ctx, id.WorkflowId, id.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			require.NoError(s.t, err)
			add(event)
		}
	}
	return string(all)
}

// published returns all texts that the roles write outside the SidecarSet, its revisions and its pods.
func (s *scenario) published() map[string]string {
	s.t.Helper()
	all := map[string]string{"histories": s.rawHistories(), "status": s.described()}
	for _, role := range stack.Roles() {
		log, err := os.ReadFile(filepath.Join(stack.LogDir(), role.Name+".log"))
		require.NoError(s.t, err)
		require.NotEmpty(s.t, log)
		all["log of "+role.Name] = string(log)
		if process, err := stack.Process(role.Name); err != nil || !process.Running {
			continue
		}
		answer, err := http.Get(role.Metrics)
		require.NoError(s.t, err)
		metrics, err := io.ReadAll(answer.Body)
		require.NoError(s.t, err)
		require.NoError(s.t, answer.Body.Close())
		require.NotEmpty(s.t, metrics)
		all["metrics of "+role.Name] = string(metrics)
	}
	for what, list := range map[string]client.ObjectList{"events": &corev1.EventList{}, "leases": &coordinationv1.LeaseList{}} {
		require.NoError(s.t, stack.kube.List(s.ctx, list))
		text, err := yaml.Marshal(list)
		require.NoError(s.t, err)
		all[what] = string(text)
	}
	return all
}

func (s *scenario) toldNoSecret() {
	s.t.Helper()
	for what, text := range s.published() {
		// The test prints only a part of the text, because the text may be long.
		if at := strings.Index(text, secret); at >= 0 {
			assert.Fail(s.t, "a secret is in the "+what, text[max(0, at-200):min(len(text), at+100)])
		}
	}
}

func TestSecretsOfASetStayInIt(t *testing.T) {
	s := newScenario(t, 3, withSecrets)
	s.failRollouts()
	s.toldNoSecret()
	assert.Contains(t, s.rawHistories(), s.pods()[0].Name, "what is searched is what the runs wrote")
}

// awaitNoOpenRuns waits until no run is open, because the next workers have other keys. awaitNoOpenRuns
// terminates eviction runs, because an eviction run may detect the deletion of its policy only after several
// minutes.
func (s *scenario) awaitNoOpenRuns() {
	s.t.Helper()
	s.poll("all runs to end", func() (bool, error) {
		open, err := stack.temporal.ListWorkflow(s.ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: cluster.TemporalNamespace, Query: "ExecutionStatus='Running'",
		})
		if err != nil {
			return false, err
		}
		for _, run := range open.Executions {
			if id := run.Execution; run.Type.Name == protocol.EvictionWorkflow {
				err := stack.temporal.TerminateWorkflow(s.ctx, id.WorkflowId, id.RunId, "the next workers cannot read it")
				if _, ended := errors.AsType[*serviceerror.NotFound](err); err != nil && !ended {
					return false, err
				}
			}
		}
		return len(open.Executions) == 0, nil
	})
}

// encrypted replaces the operator and the workers by processes that encrypt payloads, until the test ends.
func (s *scenario) encrypted() {
	s.t.Helper()
	keys := makeKey(s.t)
	var err error
	stack.codec, err = codec.Open(keys)
	require.NoError(s.t, err)
	usual := append(workers(), cluster.Operator)
	for _, name := range usual {
		require.NoError(s.t, stack.Stop(name))
	}
	encrypting := []string{"operator-encrypted", "worker-encrypted"}
	s.t.Cleanup(func() {
		for _, name := range encrypting {
			assert.NoError(s.t, stack.Stop(name))
		}
		for _, name := range usual {
			assert.NoError(s.t, stack.StartAgain(context.WithoutCancel(s.ctx), name))
		}
	})
	for _, name := range encrypting {
		_, err := stack.StartRole(s.ctx, name, "--temporal-payload-key-dir="+keys.KeyDir, "--temporal-payload-key-id="+keys.KeyID)
		require.NoError(s.t, err)
	}
}

func TestEncryptedRunsTellNoNamesOfPods(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	before := &scenario{t: t, ctx: ctx}
	before.awaitNoOpenRuns()
	before.encrypted()
	s := newScenario(t, 3, withSecrets)
	s.failRollouts()
	s.awaitNoOpenRuns()
	s.toldNoSecret()
	raw := s.rawHistories()
	for _, pod := range s.pods() {
		assert.NotContains(t, raw, pod.Name)
	}
	assert.NotContains(t, raw, s.name+" generation 1", "the summary")
	assert.Contains(t, raw, "binary/encrypted")

	// The key still decrypts the payloads.
	status := s.asked()
	assert.Equal(t, s.name, status.SidecarSet.Name)
	assert.Equal(t, protocol.PhaseComplete, status.Phase)

	// The SidecarSet is deleted while the workers can still read its runs.
	require.NoError(t, stack.kube.Delete(s.ctx, s.set))
	s.awaitNoOpenRuns()
}
