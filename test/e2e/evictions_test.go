//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
)

func TestSpec13_2_AnEvictedPodComesBackWithTheNewEnvironment(t *testing.T) {
	s := newEnvironment(t, 1, nil)
	s.deploy(3, v1)
	before := s.pods()
	s.edit(`[{"op":"add","path":"/spec/containers/0/env","value":[{"name":"LEVEL","value":"debug"}]}]`)
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	policy.Spec.NotUpgradable = &outriggerv1.RolloutNotUpgradable{Action: outriggerv1.EvictNotUpgradable}
	require.NoError(t, stack.kube.Create(s.ctx, policy))
	t.Cleanup(func() { require.NoError(t, stack.kube.Delete(context.WithoutCancel(s.ctx), policy)) })
	s.poll("the evictions", func() (bool, error) {
		ready := 0
		for _, pod := range s.pods() {
			if status, known := containers(&pod)[sidecar]; known && status.Ready {
				ready++
			}
		}
		// A replacement may start while the evicted pod terminates.
		assert.GreaterOrEqual(t, ready, 2, "one pod at a time")
		err := stack.kube.Get(s.ctx, client.ObjectKeyFromObject(policy), policy)
		evictions := policy.Status.Evictions
		return err == nil && evictions != nil && evictions.Evicted == 3 && evictions.Remaining == 0 && evictions.Since == nil, err
	})
	for _, pod := range s.pods() {
		if pod.DeletionTimestamp != nil {
			continue
		}
		for _, was := range before {
			assert.NotEqual(t, was.UID, pod.UID)
		}
		i := 0
		for pod.Spec.Containers[i].Name != sidecar {
			i++
		}
		assert.Contains(t, pod.Spec.Containers[i].Env, corev1.EnvVar{Name: "LEVEL", Value: "debug"})
	}
}
