package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// newRollbackScenario creates a scenario with a policy that rolls back, and waits until the first rollout has
// ended.
func newRollbackScenario(t *testing.T, n int32, steps ...outriggerv1.RolloutStep) *scenario {
	t.Helper()
	s := newStagedScenario(t, n, intstr.FromInt32(2), steps...)
	policy := &outriggerv1.RolloutPolicy{}
	policy.Name = s.name
	require.NoError(t, stack.kube.Patch(s.ctx, policy, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"failure":{"maxFailedPods":0,"action":"Rollback"}}}`))))
	s.awaitGood()
	return s
}

func (s *scenario) awaitQuarantine() *v1alpha1.SidecarSet {
	s.t.Helper()
	s.watched.Expect("side:v1")
	set := s.awaitSet("the quarantine", func(set *v1alpha1.SidecarSet) bool { return set.Status.Rollout.Quarantine != nil })
	s.await(observer.Converged(int(set.Status.MatchedPods)))
	s.awaitPhase(protocol.PhaseQuarantined)
	s.awaitReason(v1alpha1.ReasonQuarantined)
	return set
}

func TestSpec11_12_AFailedRolloutIsRolledBack(t *testing.T) {
	t.Parallel()
	s := newRollbackScenario(t, 10, outriggerv1.RolloutStep{UpTo: intstr.FromInt32(4)})
	s.upgradeTo("side:bad")
	set := s.awaitQuarantine()
	assert.LessOrEqual(t, s.watched.Asked("side:bad"), 4)
	assert.Regexp(t, `^[1-4] pods? failed after the upgrade, and 0 are allowed, such as `, set.Status.Rollout.Quarantine.Reason)
	set = s.awaitSet("no pod with the content", func(set *v1alpha1.SidecarSet) bool { return set.Status.UpdatedPods == 0 })
	assert.Equal(t, set.Status.LastGoodRevision().Revision, set.Status.Rollout.Quarantine.Revision)
	asked := s.watched.Asked("side:bad")

	// The same content is not rolled out again, even if other fields change or Temporal loses the run.
	for range 3 {
		s.edit(`[{"op":"add","path":"/spec/updateStrategy/maxUnavailable","value":3}]`)
		s.edit(`[{"op":"add","path":"/spec/updateStrategy/maxUnavailable","value":2}]`)
	}
	s.awaitReason(v1alpha1.ReasonQuarantined)
	s.awaitPhase(protocol.PhaseQuarantined)
	s.terminate()
	s.awaitStatus("a run of the quarantine", func(status protocol.RolloutStatus) bool {
		return status.Phase == protocol.PhaseQuarantined && status.Stage.Quarantine.Hash == set.Status.Rollout.Quarantine.Hash
	})
	assert.Equal(t, map[string]int{"side:v1": 5}, sidecars(s.dryRun(5)))
	s.scale(12)
	s.await(observer.Converged(12))
	assert.Equal(t, asked, s.watched.Asked("side:bad"))

	s.upgradeTo("side:v3")
	s.await(observer.Converged(12))
	s.awaitSet("the end", func(set *v1alpha1.SidecarSet) bool { return counts(12)(set) && set.Status.Rollout.Quarantine == nil })
	s.within(2)
}

func TestSpec11_12_AnAbortedRolloutIsRolledBackAndRetried(t *testing.T) {
	t.Parallel()
	s := newRollbackScenario(t, 8, bakes(intstr.FromInt32(3), time.Hour))
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonBaking)
	_, err := s.requestStep(protocol.RetryUpdate, 0)
	require.ErrorContains(t, err, "the rollout is not rolled back")
	_, err = s.requestStep(protocol.AbortUpdate, 0)
	require.NoError(t, err)
	set := s.awaitQuarantine()
	assert.Equal(t, "ann aborted the rollout of generation 2", set.Status.Rollout.Quarantine.Reason)
	lease := &coordinationv1.Lease{}
	require.NoError(t, stack.kube.Get(s.ctx, client.ObjectKey{Namespace: "kruise-system", Name: v1alpha1.RolloutLeasePrefix + s.name}, lease))
	assert.NotEmpty(t, lease.Annotations[v1alpha1.StageChangedAnnotation], "the operator reads the run immediately")
	assert.Equal(t, 3, s.watched.Asked("side:v2"))
	_, err = s.requestStep(protocol.AbortUpdate, 0)
	require.ErrorContains(t, err, "is rolled back already")
	_, err = s.requestStep(protocol.ApproveUpdate, 0)
	require.ErrorContains(t, err, "kubectl sidecarset retry")

	_, err = s.requestStep(protocol.RetryUpdate, 0)
	require.NoError(t, err)
	s.awaitReason(v1alpha1.ReasonBaking)
	s.promoteFully()
	s.watched.Expect("side:v2")
	s.await(observer.Converged(8))
	s.awaitSet("the end", func(set *v1alpha1.SidecarSet) bool { return counts(8)(set) && set.Status.Rollout.Quarantine == nil })
	s.within(2)
}

// The test changes the image when the status shows the end of the previous rollout. At this time, the run of
// the previous rollout may still be open.
func TestSpec11_12_ARollbackGoesToTheRevisionWhoseEndStatusHasJustShown(t *testing.T) {
	t.Parallel()
	s := newRollbackScenario(t, 6)
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonRolloutComplete)
	s.slow("4s").upgradeTo("side:v3")
	s.await(func(v observer.View) bool { return v.Updated >= 1 })
	_, err := s.requestStep(protocol.AbortUpdate, 0)
	require.NoError(t, err)
	s.watched.Expect("side:v2")
	s.awaitReason(v1alpha1.ReasonQuarantined)
	s.await(observer.Converged(6))
	assert.Equal(t, map[string]int{"side:v2": 6}, sidecars(s.pods()))
	s.within(2)
}
