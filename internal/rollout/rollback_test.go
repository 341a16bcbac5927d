package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// withHash records the hash of the content of a SidecarSet in a pod.
func withHash(set, hash string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1alpha1.HashAnnotation: `{"` + set + `":{"hash":"` + hash + `"}}`}
	}
}

// rollingBack returns the stage of a rollback from content with the hash bad.
func rollingBack(set *v1alpha1.SidecarSet) *protocol.Stage {
	return &protocol.Stage{Generation: set.Generation, Step: &protocol.Step{UpTo: intstr.FromInt32(1)},
		Quarantine: &protocol.Quarantine{Hash: "bad", Revision: "web-1", Reason: "3 pods failed"}}
}

func TestSpec11_12_ARollbackUpgradesOnlyPodsWithTheQuarantinedContent(t *testing.T) {
	set := unavailable(intstr.FromInt32(2))
	back := rollingBack(set)
	unready, different := old, old
	unready.Ready = false
	different.Upgradable = false
	pods := []Pod{
		newPod("a", old, withHash(set.Name, "bad")), newPod("b", unready, withHash(set.Name, "bad")),
		newPod("c", old, withHash(set.Name, "older")), newPod("d", updated, withHash(set.Name, "good")),
		newPod("e", different, withHash(set.Name, "bad")),
	}
	plan, err := NextInStage(set, pods, nil, back)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseProgressing, plan.Phase)
	assert.Equal(t, []string{"b*", "a"}, chosen(plan), "pods that are not ready come first")
	assert.Equal(t, []int{3, 2, 2}, []int{plan.Quarantined, plan.QuarantinedReady, plan.Counts.Remaining})
	assert.Equal(t, "rolling back to revision web-1: 2 to go, 0 unavailable of 2 allowed; 3 pods failed", plan.Message)
	assert.Empty(t, plan.TrueConditions)

	plan, err = NextInStage(set, pods[2:], nil, back)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseQuarantined, plan.Phase)
	assert.Equal(t, "rolled back to revision web-1: 3 pods failed; pods that cannot be rolled back in place: 1, such as d/e", plan.Message)
	assert.False(t, plan.Phase.Ended(), "the run stays open for a retry")

	set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
	plan, err = NextInStage(set, pods, nil, back)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseQuarantined, plan.Phase)
	assert.Contains(t, plan.Message, "2 pods keep the quarantined content, because upgrades are off (updateStrategy.type NotUpdate); 3 pods failed")
	assert.Empty(t, plan.Pods)
}

func TestSpec11_12_AFailureIsRolledBackToTheLastGoodRevision(t *testing.T) {
	set := unavailable(intstr.FromInt32(2))
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "bad"}
	set.Generation = 3
	aborted := &protocol.Stage{Generation: set.Generation, Aborted: &protocol.Approval{By: "ann", Reason: "errors"}}
	pods := matched([]podstate.State{updated, old}...)
	plan, err := NextInStage(set, pods, nil, aborted)
	require.NoError(t, err)
	failure, err := Failure(set, pods, &plan, aborted)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Failure{Reason: "ann aborted the rollout of generation 3: errors; it is not rolled back, because no rollout of other content has ended, or this content was rolled out before"}, failure, "the first rollout has nothing to go back to")

	set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Revision: "web-1", Hash: "good", ResourceVersion: "1"}}
	failure, err = Failure(set, pods, &plan, aborted)
	require.NoError(t, err)
	assert.Equal(t, &protocol.Quarantine{Hash: "bad", Revision: "web-1", Reason: "ann aborted the rollout of generation 3: errors"}, failure.Quarantine)

	anonymous := &protocol.Stage{Generation: set.Generation, Aborted: &protocol.Approval{}}
	failure, err = Failure(set, pods, &plan, anonymous)
	require.NoError(t, err)
	assert.Equal(t, "the rollout of generation 3 was aborted", failure.Quarantine.Reason)

	set.Status.GoodRevisions[0].Hash = "bad"
	failure, err = Failure(set, pods, &plan, aborted)
	require.NoError(t, err)
	assert.Nil(t, failure.Quarantine, "the content itself is the last good content")
}
