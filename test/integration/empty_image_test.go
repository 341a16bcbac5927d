package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// recorded returns, for each pod, the images of the containers in the spec and the recorded versions of the
// upgrades.
func (s *scenario) recorded() map[string]string {
	s.t.Helper()
	recorded := map[string]string{}
	for _, pod := range s.pods() {
		for i := range pod.Spec.Containers {
			recorded[pod.Name] += pod.Spec.Containers[i].Image + " "
		}
		recorded[pod.Name] += pod.Annotations[v1alpha1.InPlaceUpdateStateAnnotation]
	}
	return recorded
}

// An upgrade in place cannot change the empty image. Existing pods keep their empty image.
func TestSpec7_2_AnotherEmptyImageTouchesNoPod(t *testing.T) {
	t.Parallel()
	for name, strategy := range map[string]string{
		"rolling": `{}`, "paused": `{"paused":true}`, "not update": `{"type":"NotUpdate"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHotScenario(t, 4)
			before := s.recorded()
			s.edit(fmt.Sprintf(`[{"op":"replace","path":"/spec/containers/0/upgradeStrategy/hotUpgradeEmptyImage","value":"empty:2"},
				{"op":"replace","path":"/spec/updateStrategy","value":%s}]`, strategy))
			s.awaitSet("the pods to be reported", func(set *v1alpha1.SidecarSet) bool {
				progress := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
				return set.Status.ObservedGeneration == set.Generation && progress != nil && strings.Contains(progress.Message, "4 not upgradable in place")
			})
			s.awaitStatus("the run to end", func(status protocol.RolloutStatus) bool {
				return status.Generation == s.set.Generation && status.Phase.Ended()
			})
			var result protocol.RolloutResult
			require.NoError(t, stack.temporal.GetWorkflow(s.ctx, s.workflow(), "").Get(s.ctx, &result))
			assert.Equal(t, 4, result.Counts.NotUpgradable)
			assert.Equal(t, before, s.recorded())
			s.within(0)
		})
	}
}
