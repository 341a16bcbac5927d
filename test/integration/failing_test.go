package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// newFailingScenario creates n ready pods on a node without a kubelet, and a RolloutPolicy with failure as
// spec.failure. The test writes the status of the pods in place of a kubelet. newFailingScenario returns when
// the first rollout has ended.
func newFailingScenario(t *testing.T, n int, maxUnavailable int32, failure string, steps ...outriggerv1.RolloutStep) *scenario {
	t.Helper()
	s := newStagedScenario(t, 0, intstr.FromInt32(maxUnavailable), steps...)
	s.patchPolicy(`{"failure":` + failure + `}`)
	for i := range n {
		s.byHand(fmt.Sprintf("pod-%d", i))
	}
	s.await(func(v observer.View) bool { return v.Ready == n })
	s.awaitGood()
	return s
}

// awaitSleep waits until the run sleeps. The run sleeps when no pod has to be upgraded and upgraded pods are
// not ready.
func (s *scenario) awaitSleep() {
	s.t.Helper()
	s.awaitStatus("the sleep of the run", func(status protocol.RolloutStatus) bool {
		return status.Generation == s.set.Generation && status.Phase == protocol.PhaseWaiting && status.Counts.Converging == 2
	})
}

// Without a signal, the sleeping run plans again only after several minutes.
func TestSpec11_2_TheLastReadyPodOfAStepBeginsItsBakeTime(t *testing.T) {
	t.Parallel()
	s := newFailingScenario(t, 4, 4, `{"maxFailedPods":0}`, bakes(intstr.FromInt32(2), time.Hour))
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 2 })
	s.awaitSleep()
	for _, name := range s.images("side:v2") {
		s.report(name, "side:v2", "sha256:v2", 1)
	}
	s.awaitReason(v1alpha1.ReasonBaking)
}

func (s *scenario) awaitFailure() string {
	s.t.Helper()
	set := s.awaitSet("the quarantine", func(set *v1alpha1.SidecarSet) bool { return set.Status.Rollout.Quarantine != nil })
	s.watched.Expect("side:v1")
	return set.Status.Rollout.Quarantine.Reason
}

// A pod whose sidecar starts but does not pass its probes is unready, and does not count as failed.
func TestSpec11_6_ARolloutWithoutProgressIsRolledBack(t *testing.T) {
	t.Parallel()
	s := newFailingScenario(t, 4, 2, `{"maxFailedPods":"100%","action":"Rollback","progressDeadline":"10s"}`)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 2 })
	upgraded := s.images("side:v2")
	for _, name := range upgraded {
		s.reportReady(corev1.ConditionFalse, name, "side:v2", "sha256:v2", 1)
	}
	assert.Equal(t, fmt.Sprintf("no pod became updated and ready within 10s (progressDeadline); upgraded pods that are not ready: 2, such as %[1]s/%[2]s, %[1]s/%[3]s",
		s.name, upgraded[0], upgraded[1]), s.awaitFailure())
	s.await(func(v observer.View) bool { return v.Updated == 4 })
	s.awaitStatus("the sleep of the rollback", func(status protocol.RolloutStatus) bool {
		return status.Phase == protocol.PhaseWaiting && status.Counts.Remaining == 0 && status.Counts.Converging == 2
	})
	for _, name := range upgraded {
		s.report(name, "side:v1", "sha256:same", 2)
	}
	s.awaitPhase(protocol.PhaseQuarantined)
	assert.Equal(t, 2, s.watched.Asked("side:v2"))
}

func TestSpec11_6_UpgradedPodsThatAreNotReadyFail(t *testing.T) {
	t.Parallel()
	s := newFailingScenario(t, 6, 2, `{"maxFailedPods":1,"action":"Rollback","unreadyFor":"4s"}`)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 2 })
	upgraded := s.images("side:v2")
	for _, name := range upgraded {
		s.reportReady(corev1.ConditionFalse, name, "side:v2", "sha256:v2", 1)
	}
	assert.Equal(t, fmt.Sprintf("2 pods failed after the upgrade, and 1 are allowed, such as %s/%s (not ready for 4s)", s.name, upgraded[0]), s.awaitFailure())
	s.await(func(v observer.View) bool { return v.Updated == 6 })
	s.awaitStatus("the sleep of the rollback", func(status protocol.RolloutStatus) bool {
		return status.Phase == protocol.PhaseWaiting && status.Counts.Remaining == 0 && status.Counts.Converging == 2
	})
	for _, name := range upgraded {
		s.report(name, "side:v1", "sha256:same", 2)
	}
	s.awaitPhase(protocol.PhaseQuarantined)
	assert.Equal(t, 2, s.watched.Asked("side:v2"))
}

// During the bake time, the operator wakes the run when an upgraded pod becomes unready (SPEC §11.6). The run
// does not wait for its next plan.
func TestSpec11_6_APodThatBecomesUnreadyDuringABakeTimeFails(t *testing.T) {
	t.Parallel()
	s := newFailingScenario(t, 4, 4, `{"maxFailedPods":0,"action":"Rollback","unreadyFor":"2s"}`, bakes(intstr.FromInt32(1), time.Hour))
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 1 })
	upgraded := s.images("side:v2")[0]
	s.report(upgraded, "side:v2", "sha256:v2", 1)
	s.awaitReason(v1alpha1.ReasonBaking)
	s.reportReady(corev1.ConditionFalse, upgraded, "side:v2", "sha256:v2", 1)
	assert.Equal(t, fmt.Sprintf("1 pod failed after the upgrade, and 0 are allowed, such as %s/%s (not ready for 2s)", s.name, upgraded), s.awaitFailure())
}

// A node with pods of both versions fails during a bake time, and recovers after the last upgrade.
func TestSpec11_6_ANodeThatDiesUnderBothVersionsStopsNothing(t *testing.T) {
	t.Parallel()
	s := newFailingScenario(t, 10, 10, `{"maxFailedPods":0,"action":"Rollback","unreadyFor":"10s"}`, bakes(intstr.FromInt32(5), 25*time.Second))
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 5 })
	upgraded := s.images("side:v2")
	for _, name := range upgraded {
		s.report(name, "side:v2", "sha256:v2", 1)
	}
	s.awaitReason(v1alpha1.ReasonBaking)
	older := s.images("side:v1")
	s.reportReady(corev1.ConditionFalse, older[0], "side:v1", "sha256:same", 0)
	s.reportReady(corev1.ConditionFalse, upgraded[0], "side:v2", "sha256:v2", 1)
	s.await(func(v observer.View) bool { return v.Updated == 10 })
	for _, name := range older[1:] {
		s.report(name, "side:v2", "sha256:v2", 1)
	}
	s.awaitSet("nine ready pods", func(set *v1alpha1.SidecarSet) bool { return set.Status.UpdatedReadyPods == 8 })
	s.report(older[0], "side:v2", "sha256:v2", 1)
	s.report(upgraded[0], "side:v2", "sha256:v2", 1)
	s.awaitPhase(protocol.PhaseComplete)
	set := s.awaitSet("the end", counts(10))
	assert.Nil(t, set.Status.Rollout.Quarantine)
	assert.Nil(t, set.Status.Rollout.Pause)
}

func TestSpec11_12_ARollbackSurvivesTheDeathOfItsWorkers(t *testing.T) {
	s := newRollbackScenario(t, 20, bakes(intstr.FromInt32(10), time.Hour))
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonBaking)
	_, err := s.requestStep(protocol.AbortUpdate, 0)
	require.NoError(t, err)
	s.watched.Expect("side:v1")
	s.await(func(v observer.View) bool { return v.Updated >= 12 })
	killWorkers(t)
	killed := s.watched.View().Updated
	startWorkers(s.ctx, t)
	s.awaitQuarantine()
	assert.Less(t, killed, 20, "the rollback had ended before")
	assert.Equal(t, 10, s.watched.Asked("side:v2"))
	s.within(2)
}

func TestSpec11_12_HotPodsAreRolledBack(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 6, func(set *v1alpha1.SidecarSet) {
		hot(2)(set)
		set.Labels = map[string]string{"rollout": set.Name}
	})
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	policy.Spec = outriggerv1.RolloutPolicySpec{Selector: metav1.LabelSelector{MatchLabels: s.set.Labels}, Steps: []outriggerv1.RolloutStep{bakes(intstr.FromInt32(3), time.Hour)}}
	require.NoError(t, stack.kube.Create(s.ctx, policy))
	t.Cleanup(func() { require.NoError(t, stack.kube.Delete(context.WithoutCancel(s.ctx), policy)) })
	s.awaitGood()
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonBaking)
	_, err := s.requestStep(protocol.AbortUpdate, 0)
	require.NoError(t, err)
	s.watched.Expect("side:v1")
	s.awaitTwins(6, "side:v1")
	s.awaitPhase(protocol.PhaseQuarantined)
	s.awaitReason(v1alpha1.ReasonQuarantined)
}
