package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

func TestPodsThatLackTheirSidecarAreReported(t *testing.T) {
	s := newScenario(t, 0, func(set *v1alpha1.SidecarSet) { set.Spec.Selector.MatchLabels = map[string]string{"app": "not-yet"} })
	require.NoError(t, stack.kube.Create(s.ctx, deployment(s.name, 2)))
	s.await(func(v observer.View) bool { return v.Ready == 2 })
	s.edit(`[{"op":"replace","path":"/spec/selector/matchLabels/app","value":"` + s.name + `"}]`)
	set := s.awaitSet("the pods without their sidecar to be reported", func(set *v1alpha1.SidecarSet) bool {
		return meta.IsStatusConditionFalse(set.Status.Conditions, v1alpha1.ConditionInjected)
	})
	condition := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionInjected)
	assert.Equal(t, v1alpha1.ReasonPodsWithoutSidecar, condition.Reason)
	assert.Regexp(t, "^2 pods match but were not injected, such as "+s.name+"/app-", condition.Message)
	// Recreated pods have the sidecar.
	out, err := kubectl(s.ctx, "", "delete", "pods", "-n", s.name, "--all", "--wait=false")
	require.NoError(t, err, out)
	s.awaitSet("nothing to report", func(set *v1alpha1.SidecarSet) bool {
		return set.Status.MatchedPods == 2 && meta.IsStatusConditionTrue(set.Status.Conditions, v1alpha1.ConditionInjected)
	})
}
