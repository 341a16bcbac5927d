package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/test/witness"
)

// Pods that another set takes down are not in the budget of this one.
func TestSpec7_5_AnotherSetOnTheSamePodsHoldsNothingUp(t *testing.T) {
	s := newScene(t, 0, nil)
	other := s.set.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Name: s.name + "-other"}
	other.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "other", Image: "other:v1"}}}
	other.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromString("100%"))
	other.Spec.UpdateStrategy.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"half": "first"}}
	require.NoError(t, stack.kube.Create(s.ctx, other))
	t.Cleanup(func() {
		require.NoError(t, kube.IgnoreNotFound(stack.kube.Delete(context.WithoutCancel(s.ctx), other)))
	})
	s.poll("pods to get both sidecars", func() (bool, error) {
		containers, err := tryPod(s.ctx, s.name, s.name)
		return len(containers) == 3, err
	})
	require.NoError(t, stack.kube.Create(s.ctx, deployment(s.name, 20)))
	s.await(witness.Settled(20))

	// The first half is upgraded alone.
	s.witness.Expect("side:v2")
	began := time.Now()
	s.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"},{"op":"replace","path":"/spec/updateStrategy/partition","value":10}]`)
	s.await(func(v witness.View) bool { return v.Updated == 10 && v.InFlight == 0 })
	alone := time.Since(began)
	s.awaitPhase(protocol.PhasePartitionReached)

	// The second half while the first is down because of the other set.
	for _, name := range s.images("side:v2") {
		s.patchPod(s.pod(name), `{"metadata":{"labels":{"half":"first"}}}`)
	}
	require.NoError(t, stack.kube.Patch(s.ctx, other, kube.RawPatch("application/json-patch+json",
		[]byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"other:bad"}]`))))
	s.await(func(v witness.View) bool { return v.Ready == 10 })
	began = time.Now()
	s.edit(`[{"op":"replace","path":"/spec/updateStrategy/partition","value":0}]`)
	s.await(func(v witness.View) bool { return v.Updated == 20 && v.InFlight == 0 })
	assert.Less(t, time.Since(began), 2*alone, "alone it took %s", alone)
	s.within(2)
}
