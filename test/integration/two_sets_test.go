package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// A run uses every available slot, even if another SidecarSet continuously restarts the same pods and thereby
// changes the order of the pods.
func TestSpec7_5_AnotherSetOnTheSamePodsStopsNoUpgrade(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 0, nil)
	other := s.set.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Name: s.name + "-other"}
	other.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "other", Image: "other:v1"}}}
	require.NoError(t, stack.kube.Create(s.ctx, other))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(stack.kube.Delete(context.WithoutCancel(s.ctx), other)))
	})
	s.poll("pods to get both sidecars", func() (bool, error) {
		containers, err := tryPod(s.ctx, s.name, s.name)
		return len(containers) == 3, err
	})
	require.NoError(t, stack.kube.Create(s.ctx, deployment(s.name, 20)))
	s.await(observer.Converged(20))

	began := time.Now()
	s.upgradeTo("side:v2")
	s.await(observer.Converged(20))
	alone := time.Since(began)

	began = time.Now()
	s.upgradeTo("side:v3")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	require.NoError(t, stack.kube.Patch(s.ctx, other, client.RawPatch("application/json-patch+json",
		[]byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"other:v2"}]`))))
	s.await(observer.Converged(20))
	together := time.Since(began)
	t.Logf("20 pods take %s alone, %s while another set restarts them", alone, together)
	worst, event := s.watched.Worst()
	assert.LessOrEqual(t, worst, 2, "pods in flight at %s", event)
}
