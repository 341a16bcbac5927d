//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

func TestSpec11_12_NoRequestFailsWhileAMissingReleaseIsRolledBack(t *testing.T) {
	s := newHotScenario(t, 3)
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	policy.Spec.Steps = []outriggerv1.RolloutStep{{UpTo: intstr.FromInt32(1)}}
	policy.Spec.Failure = &outriggerv1.RolloutFailure{Action: outriggerv1.RollbackOnFailure}
	require.NoError(t, stack.kube.Create(s.ctx, policy))
	t.Cleanup(func() { require.NoError(t, stack.kube.Delete(context.WithoutCancel(s.ctx), policy)) })
	load, stop := s.asking()
	s.upgradeTo(serverImage("r2"))
	s.await(observer.Converged(3))
	s.poll("the last good revision", func() (bool, error) {
		set := &v1alpha1.SidecarSet{}
		err := stack.kube.Get(s.ctx, client.ObjectKeyFromObject(s.set), set)
		good := set.Status.LastGoodRevision()
		return err == nil && good != nil && good.Revision == set.Status.LatestRevision && set.Status.ObservedGeneration == s.set.Generation, err
	})

	s.upgradeTo(absent)
	s.awaitReason(v1alpha1.ConditionDegraded, v1alpha1.ReasonQuarantined)
	s.watched.Expect(serverImage("r2"))
	s.await(observer.Converged(3))
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonQuarantined)
	before := load.asked.Load()
	s.poll("requests after the rollback", func() (bool, error) { return load.asked.Load() > before+100, nil })
	stop()
	t.Logf("%d requests, of which %d failed; answers: %v", load.asked.Load(), len(load.failed), load.seen)
	assert.Empty(t, load.failed)
	assert.LessOrEqual(t, s.watched.Asked(absent), 1, "the first step has one pod")
	s.within(1)
}
