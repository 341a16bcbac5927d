package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSpec7_9_ResizesThatRestartNothingTakeNoSlots(t *testing.T) {
	free := old
	free.RestartsNothing = true
	pods := []Pod{newPod("a", old), newPod("b", old), newPod("c", free), newPod("d", free)}
	plan, err := Next(unavailable(intstr.FromInt32(1)), pods, nil)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"a", "c*", "d*"}, chosen(plan))
	refill := plan.Refill(append(plan.Pods, plan.Queued...), nil, 1)
	assert.Len(t, refill.Now, 2, "an unseen write uses the slot")
	assert.Len(t, refill.Left, 2)
}

func TestSpec7_9_ARunWaitsForResizesWithoutSlots(t *testing.T) {
	resizing := updated
	resizing.Resizing = true
	plan, err := Next(unavailable(intstr.FromInt32(1)), []Pod{newPod("a", updated), newPod("b", resizing)}, nil)
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseWaiting, plan.Phase)
	assert.Equal(t, []int{1, 0, 1}, []int{plan.Counts.Converging, plan.Counts.Unavailable, plan.Counts.UpdatedReady})
	assert.Contains(t, plan.Message, "waiting for pods such as d/b")
}

// The worker stopped between the resize and the upgrade, and the rollout is rolled back.
func TestSpec7_9_ARollbackFinishesAResizeThatHasBegun(t *testing.T) {
	set := unavailable(intstr.FromInt32(2))
	back := rollingBack(set)
	begun := newPod("a", old, withHash(set.Name, "good"), func(pod *corev1.Pod) {
		pod.Annotations[v1alpha1.ResizeAnnotation] = `{"` + set.Name + `":"bad"}`
	})
	plan, err := NextInStage(set, []Pod{begun, newPod("b", old, withHash(set.Name, "older"))}, nil, back)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, chosen(plan))
}

// The batch of the rollback ended after the batch recorded the resize, so the record contains the hash of the
// content of the rollback.
func TestSpec7_9_ARollbackFinishesItsOwnResize(t *testing.T) {
	set := unavailable(intstr.FromInt32(2))
	back := rollingBack(set)
	begun := newPod("a", old, withHash(set.Name, "older"), func(pod *corev1.Pod) {
		pod.Annotations[v1alpha1.ResizeAnnotation] = `{"` + set.Name + `":"good"}`
	})
	finished := newPod("b", old, withHash(set.Name, "older"), func(pod *corev1.Pod) {
		pod.Annotations[v1alpha1.ResizeAnnotation] = `{"` + set.Name + `":"older"}`
	})
	plan, err := NextInStage(set, []Pod{begun, finished}, nil, back)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, chosen(plan))
}

// The kubelet cannot resize pod a to the previous content. The upgrade to the new content must not wait for the
// previous resize.
func TestSpec7_9_APodThatWaitsForAResizeDoesNotBlockItsOwner(t *testing.T) {
	waiting := old
	waiting.Resizing, waiting.ResizeRestarts, waiting.UpgradedInPlace = true, true, true
	pods := []Pod{owned("a", "x", waiting), owned("b", "x", old)}
	require.True(t, pods[0].UnavailableByUpgrade())
	plan, err := NextInStage(unavailable(intstr.FromInt32(9)), pods, nil, onePerOwner(intstr.FromString("100%")))
	require.NoError(t, err)
	assert.Equal(t, []string{"a*"}, chosen(plan), "pod a uses the slot of its owner already")
}

func TestSpec7_9_ResizesThatRestartNothingTakeNoSlotsOfAPolicy(t *testing.T) {
	free := old
	free.RestartsNothing = true
	pods := []Pod{owned("a", "x", free), owned("b", "x", free), owned("c", "x", restart)}
	plan, err := NextInStage(unavailable(intstr.FromInt32(9)), pods, nil, onePerOwner(intstr.FromString("100%")))
	require.NoError(t, err)
	assert.Equal(t, []string{"a*", "b*"}, chosen(plan))

	none := web(func(budget *policyv1.PodDisruptionBudget) { budget.Status.DisruptionsAllowed = 0 })
	plan = planWithBudgets(t, []Pod{budgeted("a", free), budgeted("b", old)}, nil, none)
	assert.Equal(t, []string{"a*"}, chosen(plan))
}

// The resize of pod a may restart a container at any time, so pod a uses the disruption that the budget
// allows.
func TestSpec7_9_APodThatWaitsForAResizeUsesADisruption(t *testing.T) {
	waiting := old
	waiting.Resizing, waiting.ResizeRestarts, waiting.UpgradedInPlace = true, true, true
	plan := planWithBudgets(t, []Pod{budgeted("a", waiting), budgeted("b", old)}, []Pod{budgeted("c", old), budgeted("d", old)}, web(nil))
	assert.Equal(t, []string{"a*"}, chosen(plan))
}
