package activities

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// rejectedAgain returns an input with rejected pods that are all due for a retry.
func rejectedAgain(pods ...protocol.PodReference) (rejected protocol.Rejected) {
	for _, pod := range pods {
		rejected.Pods = append(rejected.Pods, protocol.FingerprintOf(pod.UID))
	}
	rejected.Again = len(rejected.Pods)
	return rejected
}

// With one slot, a separate plan for each rejected pod would delay the rollout by minutes.
func TestSpec7_8_ARejectedWriteLeavesItsSlotToTheNextPodAtOnce(t *testing.T) {
	refuse := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if o.GetName() != "z" {
			return apierrors.NewForbidden(podResource, o.GetName(), errors.New("policy"))
		}
		return c.Patch(ctx, o, patch, opts...)
	}}
	var pods []*corev1.Pod
	var all []string
	for i := range 260 {
		all = append(all, fmt.Sprintf("a-%03d", i))
		pods = append(pods, webPod(all[i]))
	}
	pods, all = append(pods, webPod("z"), webPod("z-2")), append(all, "z", "z-2")
	cluster := newTestCluster(t, refuse, webSet(1), pods...)
	b := cluster.batchOf(all...)
	_, err := cluster.refills(b)
	require.NoError(t, err)
	b.endQueued()
	result := b.result()
	assert.Len(t, result.Rejected, 260)
	assert.Equal(t, []string{"z"}, writtenNames(result.Written))
	assert.Equal(t, []protocol.SelectedPod{{PodReference: refTo("z-2")}}, b.left, "the slot is taken")
}

func TestGoneNamesRejectedPodsThatAreNotUpgradableAnyMore(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a"), webPod("b", upgraded))
	rejected := rejectedAgain(refTo("a"), refTo("b"), refTo("deleted"))
	rejected.Again = 0
	result, _, err := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Rejected: rejected}).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, rejected.Pods[1:], result.Gone)
}

// A pod that cannot be retried would stay in the list of rejected pods. 200 such pods would
// prevent the retries of all other pods.
func TestSpec7_8_ARejectedPodThatIsNoCandidateKeepsNoOtherFromBeingTried(t *testing.T) {
	left := webPod("left", func(p *corev1.Pod) { p.Labels["canary"] = "no" })
	cluster := newTestCluster(t, interceptor.Funcs{}, func() *v1alpha1.SidecarSet {
		set := webSet(1)
		set.Spec.UpdateStrategy.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "canary", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}
		return set
	}(), webPod("a"), left)
	rejected := rejectedAgain(refTo("left"), refTo("a"))
	rejected.Again = 0
	result, _, err := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Rejected: rejected}).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, rejected.Pods[:1], result.Gone)
}

func TestSpec7_2_ARejectedConditionThatIsNotDueAnyMoreIsForgotten(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a"), webPod("b", upgraded, converging))
	rejected := rejectedAgain(refTo("deleted"), refTo("a"), refTo("b"))
	result, _, err := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, RejectedConditions: rejected}).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, rejected.Pods[:2], result.GoneConditions, "the condition of b is due with its upgrade")
}
