package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// A rollout that waits uses no task slot of a worker and writes no history. In this test, the worker has one
// slot, and two rollouts wait.
func TestStuckRolloutsDelayNoOther(t *testing.T) {
	s := newScenario(t, 10, nil)
	s.onlyWorker("worker-narrow", "--max-concurrent-selects=1", "--max-concurrent-patches=1")
	stuck := s.stuckSets(2)
	var before map[string]int64
	s.poll("the stuck rollouts to sleep", func() (asleep bool, err error) {
		var working, deciding int
		before, working, deciding, err = s.histories(stuck)
		return working+deciding == 0, err
	})
	s.upgradeTo("side:v2")
	s.await(observer.Converged(10))
	s.awaitPhase(protocol.PhaseComplete)
	after, working, _, err := s.histories(stuck)
	require.NoError(t, err)
	assert.Zero(t, working, "activities of stuck rollouts")
	for id := range before {
		assert.LessOrEqual(t, after[id], before[id]+2, "events of %s", id)
	}
	s.within(2)
}

// The pull of an image may take a minute. The run ends as soon as the pods are ready.
func TestARunEndsOnceItsLastPodsAreReady(t *testing.T) {
	t.Parallel()
	s := newByHandScenario(t, 1)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 1 })
	s.awaitStatus("the run to wait", func(status protocol.RolloutStatus) bool { return status.Phase == protocol.PhaseWaiting })
	s.poll("the run to sleep", func() (asleep bool, err error) {
		_, working, deciding, err := s.histories([]string{s.workflow()})
		return working+deciding == 0, err
	})
	s.report("pod-0", "side:v2", "sha256:v2", 1)
	s.awaitPhase(protocol.PhaseComplete)
}

// stuckSets creates n SidecarSets with two pods each, and starts rollouts of an image that cannot be pulled.
// When the rollouts wait, stuckSets returns the workflow IDs.
func (s *scenario) stuckSets(n int) (ids []string) {
	s.t.Helper()
	var sets []*v1alpha1.SidecarSet
	for i := range n {
		name := fmt.Sprintf("%s-%d", s.name, i)
		set := s.set.DeepCopy()
		set.ObjectMeta = metav1.ObjectMeta{Name: name}
		set.Spec.Selector.MatchLabels = map[string]string{"app": name}
		maxUnavailable(1)(set)
		require.NoError(s.t, stack.kube.Create(s.ctx, set))
		s.t.Cleanup(func() {
			require.NoError(s.t, client.IgnoreNotFound(stack.kube.Delete(context.WithoutCancel(s.ctx), set)))
		})
		s.awaitInjection(name)
		pods := deployment(name, 2)
		pods.Namespace, pods.Name = s.name, name
		require.NoError(s.t, stack.kube.Create(s.ctx, pods))
		sets, ids = append(sets, set), append(ids, protocol.WorkflowID(name, set.UID))
	}
	for _, set := range sets {
		one := &scenario{t: s.t, ctx: s.ctx, name: s.name, set: set}
		one.awaitSet("its pods", counts(2))
		one.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:bad"}]`)
	}
	for _, set := range sets {
		one := &scenario{t: s.t, ctx: s.ctx, name: s.name, set: set}
		one.awaitPhase(protocol.PhaseWaiting)
	}
	return ids
}

// histories returns the number of events of each run, and how many runs have a pending activity or a pending
// workflow task.
func (s *scenario) histories(ids []string) (events map[string]int64, working, deciding int, err error) {
	events = map[string]int64{}
	for _, id := range ids {
		run, err := stack.temporal.DescribeWorkflowExecution(s.ctx, id, "")
		if err != nil {
			return nil, 0, 0, err
		}
		events[id] = run.WorkflowExecutionInfo.HistoryLength
		if len(run.PendingActivities) > 0 {
			working++
		}
		if run.PendingWorkflowTask != nil {
			deciding++
		}
	}
	return events, working, deciding, nil
}
